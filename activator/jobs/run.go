package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/bell"
)

// retryStore is the interval of attempts while the store is full or unavailable.
const retryStore = 5 * time.Second

// run is a running batch. Its goroutine owns it.
type run struct {
	s        *Server
	claim    *store.Claim
	caller   activator.Caller
	input    store.Body
	places   []line // by number
	models   []*work
	results  chan outcome // from the goroutines of lines in flight, one each; the run receives all of them
	flying   int
	left     int // lines without a result
	deadline time.Time
	window   time.Duration
	id, path string
	messages bool // Anthropic's
	log      *slog.Logger

	unsaved []store.Result
	saving  []store.Result // being recorded by a goroutine, which alone uses the claim
	saved   chan error     // one result for each saving; received before the run uses the claim
	last    time.Time      // of the last recording
	full    time.Time      // when the store was full or unavailable; zero: it works
}

// mostUnsaved unrecorded results stop the sending of lines.
const mostUnsaved = 2000

type work struct {
	model    string
	inGate   *batchLines // nil: not in the gate
	pending  []int       // waiting lines, by number
	tries    map[int]int // by line
	left     int         // lines without a result
	flying   int         // of left, those in flight
	after    time.Time   // when the next may be sent
	refusals int         // consecutive ones
}

type outcome struct {
	work       *work
	line       int
	id         string // custom_id
	background bool
	took       time.Duration
	answer     answer
	ended      bool  // a line without an answer by then has no result
	err        error // the line can't be read
}

// runBatch runs a batch to its end, or until ctx ends. mine ends earlier if the batch is cancelled.
func (s *Server) runBatch(ctx, mine context.Context, owner, id string) {
	claim, err := s.store.Claim(owner, id, false)
	if errors.Is(err, store.ErrState) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrHeld) {
		return
	} else if err != nil { // the store will report it again
		s.log.Error("run a batch", "batch", id, "error", err)
		return
	}
	defer claim.Close()
	b := claim.Job()
	r := &run{s: s, claim: claim, id: id, path: b.Endpoint, messages: b.Messages, log: s.log.With("batch", id), results: make(chan outcome), saved: make(chan error), deadline: b.Deadline, window: b.Deadline.Sub(b.Created)}
	defer func() { s.releaseResults(r.unsaved) }()
	status, faults, err := r.runToEnd(ctx, mine)
	for err == nil {
		if err = r.finishBatch(ctx, status, faults); !store.Passing(err) {
			break
		}
		s.log.Error("batch waits for the store", "batch", id, "error", err)
		err = bell.Sleep(ctx, retryStore)
	}
	switch {
	case err == nil:
		b := claim.Job()
		s.dropInput(b)
		s.metrics.ended.WithLabelValues(status).Inc()
		s.log.Info("batch ended", "batch", id, "status", status, "completed", b.Completed, "failed", b.Failed, "of", b.Total)
	case errors.Is(err, errLost), errors.Is(err, store.ErrFenced):
		s.log.Info("another server runs the batch", "batch", id)
	case errors.Is(err, errClosing):
	default:
		s.log.Error("batch interrupted", "batch", id, "error", err)
	}
}

// runToEnd returns the final status. After an error, the batch continues another time.
func (r *run) runToEnd(ctx, mine context.Context) (status string, faults []store.Fault, err error) {
	b := r.claim.Job()
	if err := json.Unmarshal(b.Caller, &r.caller); err != nil {
		return "", nil, fmt.Errorf("read its caller: %w", err)
	}
	if b.Status == store.Cancelling && b.Total == 0 { // before it was read
		return store.Cancelled, nil, nil
	}
	faults, err = r.openInput(mine)
	if errors.Is(err, errCancelled) {
		return store.Cancelled, nil, nil
	} else if err != nil {
		return "", nil, err
	}
	defer r.input.Close()
	if len(faults) > 0 {
		return store.Failed, faults, nil
	}
	defer r.leaveGate()
	if r.claim.Job().Status == store.Cancelling {
		return store.Cancelled, nil, r.failPending(ctx, "batch_cancelled", "the batch was cancelled before this request was answered")
	}
	err = r.runLines(mine)
	switch {
	case errors.Is(err, errCancelled):
		return store.Cancelled, nil, r.failPending(ctx, "batch_cancelled", "the batch was cancelled before this request was answered")
	case errors.Is(err, errExpired):
		return store.Expired, nil, r.failPending(ctx, "batch_expired", "the request was not answered within the batch's completion window")
	}
	return store.Completed, nil, err
}

// openInput checks the input, once it is the owner's turn: a check takes a core, and the memory of its longest lines.
func (r *run) openInput(ctx context.Context) (faults []store.Fault, err error) {
	s, c, b := r.s, r.claim, r.claim.Job()
	if err := s.checks.await(ctx, b.Owner, s.cfg.Poll); err != nil {
		return nil, err
	}
	defer s.checks.give(b.Owner)
	memory := 3 * int64(s.cfg.MaxLine)
	s.memory.add(memory)
	defer s.memory.release(memory)
	file, _, err := s.store.OpenFile(b.Owner, b.Input)
	if errors.Is(err, store.ErrNotFound) {
		return []store.Fault{{Code: "missing_file", Message: "the input file is not there any more"}}, nil
	} else if err != nil {
		return nil, err
	}
	r.input = file
	in, faults, err := check(file, b.Endpoint, s.cfg)
	if err != nil || len(faults) > 0 {
		return faults, err
	}
	for _, name := range in.models {
		r.models = append(r.models, &work{model: name, tries: map[int]int{}})
	}
	r.places = in.lines
	done := c.LinesDone()
	for n, l := range in.lines {
		if w := r.models[l.model]; !done[n] {
			w.pending = append(w.pending, n)
			w.left++
			r.left++
		}
	}
	return nil, c.Change(func(b *store.Job) error {
		b.Total = len(in.lines)
		if len(in.models) == 1 {
			b.Model = in.models[0]
		}
		if b.Began.IsZero() {
			b.Began = time.Now()
		}
		if b.Status == store.Validating {
			b.Status = store.InProgress
		}
		return nil
	})
}

var errExpired = errors.New("its completion window is over")

func (r *run) runLines(ctx context.Context) error {
	ctx, cancel := context.WithDeadlineCause(ctx, r.deadline, errExpired)
	defer cancel()
	for _, w := range r.models {
		if w.left > 0 {
			w.inGate = r.s.gate.addBatch(w.model, r.deadline, w.left)
		}
	}
	tick := time.NewTicker(r.s.cfg.Poll)
	defer tick.Stop()
	for r.left > 0 && ctx.Err() == nil {
		if r.full.IsZero() && len(r.unsaved) < mostUnsaved {
			r.sendLines(ctx)
		}
		r.startRecording()
		select {
		case o := <-r.results:
			r.handleOutcome(o)
			r.handleOutcomes()
		case err := <-r.saved:
			if err = r.handleRecorded(err); err != nil {
				cancel()
				return r.finishFlying(err)
			}
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if r.left == 0 {
		return r.finishFlying(nil)
	}
	return r.finishFlying(context.Cause(ctx))
}

// finishFlying waits for the lines in flight, whose context has ended, and for the recording in progress. It returns err,
// or the error of recording.
func (r *run) finishFlying(err error) error {
	for r.flying > 0 {
		r.handleOutcome(<-r.results)
	}
	if r.saving != nil {
		if failed := r.handleRecorded(<-r.saved); failed != nil {
			return failed
		}
	}
	if errors.Is(err, errClosing) { // one attempt: otherwise these lines are sent again
		if failed := r.recordNow(); failed != nil {
			r.log.Warn("last results of the batch not recorded: their lines are sent again", "error", failed)
		}
	}
	return err
}

func (r *run) handleOutcomes() {
	for r.flying > 0 {
		select {
		case o := <-r.results:
			r.handleOutcome(o)
		default:
			return
		}
	}
}

// enough results are recorded without waiting for others.
const enough = 500

func (r *run) startRecording() {
	switch {
	case r.saving != nil, len(r.unsaved) == 0, !r.full.IsZero() && time.Since(r.full) < retryStore, len(r.unsaved) < enough && time.Since(r.last) < r.s.cfg.Gather:
		return
	}
	r.saving, r.unsaved, r.last = r.unsaved, nil, time.Now()
	go func(results []store.Result) { r.saved <- r.claim.Record(results) }(r.saving) // ends when the run receives
}

// handleRecorded handles the result of recording. While the store is full, nothing is sent.
func (r *run) handleRecorded(err error) error {
	if err == nil {
		r.s.releaseResults(r.saving)
		r.saving, r.full = nil, time.Time{}
		return nil
	}
	r.unsaved, r.saving = append(r.saving, r.unsaved...), nil
	if !store.Passing(err) {
		return err
	}
	r.waitForStore(err)
	return nil
}

func (r *run) waitForStore(err error) {
	if r.full.IsZero() {
		r.log.Error("batch waits for the store", "error", err)
	}
	r.full = time.Now()
}

func (s *Server) releaseResults(results []store.Result) {
	for _, res := range results {
		s.memory.release(int64(len(res.Text)))
	}
}

func (r *run) recordNow() error {
	if len(r.unsaved) == 0 {
		return nil
	}
	err := r.claim.Record(r.unsaved)
	if err == nil {
		r.s.releaseResults(r.unsaved)
		r.unsaved, r.full = nil, time.Time{}
	}
	return err
}

// recordAll records all results once there is room, or returns the cause of ctx's end.
func (r *run) recordAll(ctx context.Context) error {
	for {
		err := r.recordNow()
		if !store.Passing(err) {
			return err
		}
		r.waitForStore(err)
		if err := bell.Sleep(ctx, retryStore); err != nil {
			return err
		}
	}
}

func (r *run) leaveGate() {
	for _, w := range r.models {
		if w.inGate != nil {
			r.s.gate.removeBatch(w.inGate)
			w.inGate = nil
		}
	}
}

const abandonAtOnce = 1000

func (r *run) failPending(ctx context.Context, code, message string) error {
	for _, w := range r.models {
		for _, n := range w.pending {
			o := outcome{work: w, line: n}
			text := make([]byte, r.places[n].size)
			var q request
			if err := r.readInput(ctx, text, r.places[n].at); err == nil && json.Unmarshal(text, &q) == nil && q.ID != nil {
				o.id = *q.ID
			} else if store.Passing(err) {
				return context.Cause(ctx)
			}
			res := o.failure(r, code, message)
			res.Abandoned = true
			r.addResult(w, res)
			if len(r.unsaved) < abandonAtOnce {
				continue
			}
			if err := r.recordAll(ctx); err != nil {
				return err
			}
		}
		w.pending = nil
	}
	return r.recordAll(ctx)
}

// readInput waits while the store is unavailable. A passing error means that ctx has ended.
func (r *run) readInput(ctx context.Context, p []byte, at int64) error {
	for {
		_, err := r.input.ReadAt(p, at)
		if !store.Passing(err) || bell.Sleep(ctx, retryStore) != nil {
			return err
		}
	}
}

func (r *run) finishBatch(ctx context.Context, status string, faults []store.Fault) error {
	if err := r.recordAll(ctx); err != nil {
		return err
	}
	if r.claim.Job().Finalized.IsZero() && status != store.Failed {
		err := r.claim.Change(func(b *store.Job) error {
			if status != store.Cancelled {
				b.Status, b.Finalized = store.Finalizing, time.Now()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.claim.Finish(status, faults)
}
