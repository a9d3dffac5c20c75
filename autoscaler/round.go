package autoscaler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/flight"
)

// kindDecision is the record kind of decisions. Those of inputs are the names of their types.
const kindDecision = "decision"

// inputs has the type of each kind of input.
var inputs = func() map[string]reflect.Type {
	of := make(map[string]reflect.Type)
	for _, in := range []input{&functionPut{}, &functionRemoved{}, &devicesSet{}, &usageSeen{}, &roomsSet{}, &elasticSet{}, &instanceReported{}, &demandReported{},
		&used{}, &orderGiven{}, &orderWithdrawn{}, &scaleSet{}, &allStopped{}, &returned{}} {
		of[kindOf(in)] = reflect.TypeOf(in).Elem()
	}
	return of
}()

func kindOf(in input) string { return reflect.TypeOf(in).Elem().Name() }

// round records the current round. The loop owns it.
type round struct {
	rec    *flight.Recorder // nil: nothing is recorded
	secret *redactor
	saw    func(api.Decision)
}

// startRecorder starts recording, if configured. end stops it and waits for that.
func (a *loop) startRecorder() (end func()) {
	if a.round.rec == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.calls.ctx))
	var done sync.WaitGroup
	done.Go(func() { _ = a.round.rec.Run(ctx) }) // its error is always nil
	return func() {
		cancel()
		done.Wait()
	}
}

// begin begins to record a round, preceded by a new segment if one is due.
func (r *round) begin(a *loop, now time.Time, step time.Duration) {
	if r.rec == nil {
		return
	}
	if r.rec.Due(now) {
		if a.now.IsZero() {
			a.now = now
		}
		s := a.save()
		r.secret.learnAll(s)
		r.rec.Begin(a.now, now, s, func() { r.secret.state(s) })
	}
	r.rec.Round(now, step)
}

func (r *round) took(in input) {
	if r.rec != nil {
		in = r.secret.input(in)
		r.rec.Add(kindOf(in), in)
	}
}

func (r *round) decided(d api.Decision) {
	if r.saw != nil {
		r.saw(d)
	}
	if r.rec != nil {
		d.Reason, d.Error = r.secret.text(d.Reason), r.secret.text(d.Error)
		r.rec.Add(kindDecision, &d)
	}
}

func (r *round) end() {
	if r.rec != nil {
		r.rec.End()
	}
}

// CopyRecord writes the whole record to w. If nothing is recorded it returns an *[api.Error] with status 404.
func (a *Autoscaler) CopyRecord(w io.Writer) error {
	if a.round.rec == nil {
		return api.Errorf(http.StatusNotFound, "", "nothing is recorded here: its record was switched off")
	}
	if err := a.round.rec.Copy(w); err != nil {
		return fmt.Errorf("copy the record: %w", err)
	}
	return nil
}

// RecordCost returns the CPU time that recording has taken so far.
func (a *Autoscaler) RecordCost() time.Duration {
	if a.round.rec == nil {
		return 0
	}
	return a.round.rec.Cost()
}
