package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
)

func (r *run) sendLines(ctx context.Context) {
	now := time.Now()
	for _, w := range r.models {
		if len(w.pending) == 0 || now.Before(w.after) {
			continue
		}
		n, background := r.sendableLines(w, now)
		for range n {
			if r.reserveLine(w) {
				r.sendLine(ctx, w, background)
			} else if background {
				r.s.gate.lineLeft(w.inGate)
			}
		}
	}
}

// reserveLine reserves a place in flight and memory for a model's next line.
func (r *run) reserveLine(w *work) bool {
	if !r.s.memory.reserve(r.lineMemory(w.pending[0])) {
		return false
	}
	select {
	case r.s.lines <- struct{}{}:
		return true
	default:
		r.s.memory.release(r.lineMemory(w.pending[0]))
		return false
	}
}

// usualAnswer is the memory reserved for an answer in advance, or answers could block each other from completing.
const usualAnswer = 64 << 10

func (s *Server) usualAnswerMemory() int64 { return min(usualAnswer, int64(s.cfg.MaxAnswer)) }

// lineMemory is for a line's text, its body, the sent request, and the usual answer.
func (r *run) lineMemory(n int) int64 { return 3*int64(r.places[n].size) + r.s.usualAnswerMemory() }

// sendableLines returns how many lines of a model may be sent now, and whether in the background.
//
//  1. The caller may not use the model: a few, whose answers report that.
//  2. The batch is due: as many as the instances have slots, as ordinary demand.
//  3. Otherwise the spare slots of awake instances.
func (r *run) sendableLines(w *work, now time.Time) (n int, background bool) {
	room, bad := r.s.front.Room(r.caller, w.model)
	switch {
	case bad == nil:
	case r.s.unknownYet(bad.Code):
		return 0, false
	default: // 1
		return max(0, min(len(w.pending), 16-w.flying)), false
	}
	at := due(r.deadline, r.window, r.s.gate.linesBefore(w.inGate), room.Slots, r.s.pace.lineTime(w.model), room.Wake)
	if !now.Before(at) { // 2
		return max(0, min(len(w.pending), room.Slots-w.flying)), false
	}
	return r.s.gate.admitLines(w.inGate, room, len(w.pending)), true // 3
}

// sendLine sends the next line of a model; [run.reserveLine] has reserved room.
func (r *run) sendLine(ctx context.Context, w *work, background bool) {
	n := w.pending[0]
	w.pending = w.pending[1:]
	w.flying++
	r.flying++
	at := r.places[n]
	go func() { // ends when its outcome is received, see finishFlying
		o := outcome{work: w, line: n, background: background}
		began := time.Now()
		r.s.attemptLine(ctx, r, at, &o)
		o.took, o.ended = time.Since(began), ctx.Err() != nil
		<-r.s.lines
		r.results <- o
	}()
}

func (s *Server) attemptLine(ctx context.Context, r *run, at line, o *outcome) {
	text := make([]byte, at.size)
	if _, err := r.input.ReadAt(text, at.at); store.Passing(err) {
		o.answer = answer{short: true}
		return
	} else if err != nil {
		o.err = fmt.Errorf("read the line: %w", err)
		return
	}
	var q request
	if err := json.Unmarshal(text, &q); err != nil || q.ID == nil {
		o.err = errors.New("the line is not what it was when it was checked")
		return
	}
	o.id = *q.ID
	o.answer = s.serveRequest(ctx, sent{caller: r.caller, terms: activator.Terms{Background: o.background}, id: r.requestID(o.line), uri: r.path,
		header: http.Header{"Content-Type": {"application/json"}}, body: io.NopCloser(bytes.NewReader(q.Body)), size: int64(len(q.Body)), paid: s.usualAnswerMemory()})
}

func (r *run) handleOutcome(o outcome) {
	w := o.work
	w.flying--
	r.flying--
	if o.background {
		r.s.gate.lineLeft(w.inGate)
	}
	r.s.memory.release(r.lineMemory(o.line) + o.answer.charged)
	f, code, after := judge(o.answer)
	switch {
	case o.ended && o.answer.status/100 != 2:
		w.pending = append([]int{o.line}, w.pending...)
		return
	case o.err != nil:
		r.addResult(w, o.failure(r, "unreadable_line", o.err.Error()))
		return
	case o.answer.large:
		r.addResult(w, o.failure(r, "answer_too_large", fmt.Sprintf("the answer has more than %d bytes", r.s.cfg.MaxAnswer)))
		return
	case f == final:
	case f == failed && w.tries[o.line]+1 >= attempts:
	default:
		r.retryLine(w, o, f, code, after)
		return
	}
	w.refusals = 0
	if o.answer.status/100 == 2 {
		r.s.pace.record(w.model, max(0, o.took-held(o.answer.header)))
	}
	r.addResult(w, o.result(r))
}

func (r *run) retryLine(w *work, o outcome, f fate, code string, after time.Duration) {
	w.pending = append([]int{o.line}, w.pending...)
	wait := pause(w.refusals, after)
	w.refusals++
	if o.background { // another request was faster
		wait = max(after, min(wait/5, time.Second))
	}
	if f == failed {
		w.tries[o.line]++
		wait = pause(w.tries[o.line], after)
		r.s.metrics.lines.WithLabelValues("retried").Inc()
	} else {
		r.s.metrics.lines.WithLabelValues("refused").Inc()
	}
	r.log.Debug("line is sent again", "line", o.line+1, "code", code, "after", wait)
	if next := time.Now().Add(wait); next.After(w.after) {
		w.after = next
	}
}

func (r *run) addResult(w *work, res store.Result) {
	w.left--
	r.left--
	delete(w.tries, res.Line)
	r.s.memory.add(int64(len(res.Text)))
	r.unsaved = append(r.unsaved, res)
	label := "failed"
	if res.OK {
		label = "completed"
	}
	r.s.metrics.lines.WithLabelValues(label).Inc()
	if w.inGate == nil { // the batch is being ended
		return
	}
	if r.s.gate.lineAnswered(w.inGate); w.left == 0 {
		r.s.gate.removeBatch(w.inGate)
		w.inGate = nil
	}
}
