package serve

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/engine"
)

// generate runs one call's requests. If it returns an error, it has written nothing.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, o *options, e *envelope, requests []engine.Request) error {
	state, err := s.streamState(r, o, requests)
	if err != nil {
		return err
	}
	if state != nil {
		state.begin(e, requests)
	}
	stream, err := s.engine.Add(r.Context(), requests...)
	if err != nil {
		return err
	}
	defer stream.Close()
	g := &generation{
		server: s, envelope: e, events: stream, meter: s.metrics.meter(requests), begun: make([]bool, e.choices), firsts: map[int]bool{},
		stream: o.Stream, usageInStream: o.includeUsage(), state: state,
	}
	defer g.meter.end()
	if g.stream && o.continuousUsage() {
		g.each = make([]usage, e.choices)
	}
	for i := range requests {
		g.usage.prompt += len(requests[i].Prompt)
		g.firsts[i*requests[i].N] = true
		for j := range min(requests[i].N, len(g.each)) {
			g.each[i*requests[i].N+j] = usage{prompt: len(requests[i].Prompt), thoughts: -1}
		}
	}
	write := g.collect
	if g.stream {
		write = g.send
	}
	if err = write(w); err != nil {
		g.usage.tell(w)
	}
	return err
}

// The handler's goroutine owns a generation.
type generation struct {
	server   *Server
	envelope *envelope
	events   *engine.Stream
	meter    *meter
	begun    []bool       // per choice
	firsts   map[int]bool // the first choice of each prompt
	usage    usage

	stream        bool
	usageInStream bool
	each          []usage // per choice, for its chunks; nil: not requested
	state         *state  // nil: not resumable
}

func (g *generation) next() (ev engine.Event, first bool, err error) {
	if ev, err = g.events.Next(); err != nil {
		return ev, false, err
	}
	g.meter.event(&ev)
	if scored(ev.Choice) {
		g.usage.completion++
		if g.each != nil {
			g.each[ev.Index].completion++
		}
	}
	first = !g.begun[ev.Index]
	g.begun[ev.Index] = true
	if first && g.firsts[ev.Index] {
		cached := ev.Cached
		if g.state != nil {
			cached = g.state.cached(ev.Index, cached) // as it was at first
		}
		g.usage.cached += cached
		if g.each != nil {
			g.each[ev.Index].cached = cached
		}
	}
	return ev, first, nil
}

func (g *generation) used() usage {
	u := g.usage
	u.thoughts = -1
	if a, is := g.envelope.answer.(*chatAnswer); is {
		if n, thinks := a.pondered(); thinks {
			u.thoughts = n
		}
	}
	return u
}

func (g *generation) collect(w http.ResponseWriter) error {
	for {
		ev, first, err := g.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		g.envelope.answer.collect(&ev, first)
	}
	out := g.server.pieces(w)
	g.envelope.whole(out, g.used())
	out.end()
	return nil
}

// send's status goes with the first event; a later failure is an event too.
func (g *generation) send(w http.ResponseWriter) error {
	ev, first, err := g.next()
	if err != nil {
		return err // not io.EOF: every request has an event
	}
	out := newEvents(w, g.server.cfg.WriteTimeout)
	defer out.close()
	_, object := g.envelope.answer.object()
	head := g.envelope.head([]byte("data: "), object)
	frame := make([]byte, 0, 512)
	for ; err == nil; ev, first, err = g.next() {
		replayed := g.state != nil && g.state.add(&ev)
		if frame = frame[:0]; g.state != nil {
			frame = g.state.line(frame, ev.Index, g.firsts[ev.Index])
		}
		frame = append(frame, head...)
		n := len(frame)
		if frame = g.envelope.answer.chunk(frame, &ev, first); len(frame) == n || replayed {
			continue
		}
		frame = g.closeChunk(frame, ev.Index)
		if err := out.write(frame); err != nil {
			return nil // the client left or does not read
		}
		if g.state != nil {
			g.state.sent(ev.Index)
		}
	}
	if !errors.Is(err, io.EOF) {
		g.broken(out, err)
		return nil
	}
	frame = frame[:0]
	if g.usageInStream && (g.state == nil || !g.state.usage) {
		if g.state != nil {
			frame = append(frame, stateComment+usagePiece+"\n"...)
		}
		frame = append(append(frame, head...), `],`...)
		frame = append(appendUsage(frame, g.used()), "}\n\n"...)
	}
	_ = out.write(append(frame, "data: [DONE]\n\n"...))
	return nil
}

// broken ends a stream with an error event, or by closing the connection if another server can continue it.
func (g *generation) broken(out *events, err error) {
	g.server.log.Warn("stream cut", "id", g.envelope.id, "error", err)
	if g.state != nil && (errors.Is(err, engine.ErrStopped) || errors.Is(err, engine.ErrInterrupted)) {
		panic(http.ErrAbortHandler)
	}
	_ = out.write(toError(err).event())
}

func (g *generation) closeChunk(frame []byte, choice int) []byte {
	switch {
	case g.each != nil:
		return append(appendUsage(append(frame, "],"...), g.each[choice]), "}\n\n"...)
	case g.usageInStream:
		return append(frame, "],\"usage\":null}\n\n"...)
	}
	return append(frame, "]}\n\n"...)
}

type events struct{ timed }

func newEvents(w http.ResponseWriter, timeout time.Duration) *events {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	return &events{newTimed(w, timeout)}
}

func (e *events) write(frames []byte) error {
	if err := e.timed.write(frames); err != nil {
		return err
	}
	return e.control.Flush()
}
