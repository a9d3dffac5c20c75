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
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// kindDecision is the record kind of decisions; kinds has those of inputs.
const kindDecision = 1

// kinds lists the inputs with their record kinds, which must not change: records contain them.
var kinds = []struct {
	kind  uint8
	value func() input
}{
	{2, func() input { return &functionPut{} }},
	{3, func() input { return &functionRemoved{} }},
	{4, func() input { return &devicesSet{} }},
	{5, func() input { return &usageSeen{} }},
	{6, func() input { return &roomsSet{} }},
	{7, func() input { return &elasticSet{} }},
	{8, func() input { return &instanceReported{} }},
	{9, func() input { return &demandReported{} }},
	{10, func() input { return &used{} }},
	{11, func() input { return &orderGiven{} }},
	{12, func() input { return &orderWithdrawn{} }},
	{13, func() input { return &scaleSet{} }},
	{14, func() input { return &allStopped{} }},
	{15, func() input { return &returned{} }},
}

// kindOf returns the kind of each type of input.
var kindOf = sync.OnceValue(func() map[reflect.Type]uint8 {
	of := make(map[reflect.Type]uint8)
	for _, k := range kinds {
		of[reflect.TypeOf(k.value())] = k.kind
	}
	return of
})

// recordShape returns the shape of all that is recorded.
var recordShape = sync.OnceValues(func() (string, error) {
	values := []any{&saved{}, &rhythm.State{}, &api.Decision{}}
	for _, k := range kinds {
		values = append(values, k.value())
	}
	return flight.Shape(values...)
})

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
		r.rec.Add(kindOf()[reflect.TypeOf(in)], in)
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
