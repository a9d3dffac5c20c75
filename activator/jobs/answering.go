package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

// startLater starts the requests that may be served now, in order of arrival for each owner.
func (s *Server) startLater(ctx context.Context, all *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.served) < s.cfg.Later {
		owner, id, ok := s.asked.next(s.served, s.cfg.Later)
		if !ok {
			break
		}
		mine, cancel := context.WithCancelCause(ctx)
		s.served[id] = &running{owner: owner, cancel: cancel}
		all.Go(func() {
			s.serveLater(mine, owner, id)
			cancel(nil)
			s.mu.Lock()
			delete(s.served, id)
			if done := s.done[id]; done != nil {
				close(done)
				delete(s.done, id)
			}
			s.metrics.waiting.Set(float64(len(s.served)))
			s.mu.Unlock()
			s.stir()
		})
	}
	s.metrics.waiting.Set(float64(len(s.served)))
}

// serveLater serves a request until it is answered, its time is up, or ctx ends.
func (s *Server) serveLater(ctx context.Context, owner, id string) {
	claim, body, err := s.store.ClaimLater(owner, id, false)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrState) || errors.Is(err, store.ErrHeld) {
		return
	} else if err != nil { // the store will report it again
		s.log.Error("a request can't be answered later", "request", id, "error", err)
		return
	}
	defer body.Close()
	result := "answered"
	a, err := s.untilAnswered(ctx, claim, body)
	background := strings.HasPrefix(id, prefixResponse)
	defer func() { s.memory.give(a.charged) }()
	switch {
	case errors.Is(err, errExpired):
		result = "expired"
	case errors.Is(err, errCancelled):
		s.metrics.later.WithLabelValues("cancelled").Inc()
		return
	case errors.Is(err, errLost):
		return
	case err != nil: // the next server takes it over
		s.store.LeaveLater(claim)
		return
	}
	for {
		var err error
		if background {
			err = s.endBackground(claim, a)
		} else {
			err = s.store.FinishLater(claim, a.status, keptHeader(a.header), a.body)
		}
		switch {
		case err == nil:
			s.metrics.later.WithLabelValues(result).Inc()
			return
		case errors.Is(err, store.ErrFenced):
			s.metrics.later.WithLabelValues("cancelled").Inc()
			return
		}
		s.log.Error("an answer waits for the store", "request", id, "error", err)
		if err := sleep(ctx, retryStore); err != nil {
			if !errors.Is(err, errLost) {
				s.store.LeaveLater(claim)
			}
			return
		}
	}
}

// untilAnswered returns the answer to a request, whatever its status. The error is the cause of ctx's end, without an
// answer, or [errExpired], with an answer that reports it.
func (s *Server) untilAnswered(ctx context.Context, l store.Later, body io.ReaderAt) (answer, error) {
	var c activator.Caller
	if err := json.Unmarshal(l.Caller, &c); err != nil {
		return answerOf(api.Errorf(http.StatusInternalServerError, "", "read who has sent the request: %v", err)), nil
	}
	mine, cancel := context.WithDeadlineCause(ctx, l.Deadline, errExpired)
	defer cancel()
	failures, refusals := 0, 0
	for {
		text := &watched{in: io.NewSectionReader(body, 0, l.Bytes)}
		q := sent{caller: c, id: l.ID, uri: l.URI, header: l.Header.Clone(), body: text, size: l.Bytes}
		if strings.HasPrefix(l.ID, prefixResponse) {
			q.claim = &l
		}
		a := s.serve(mine, q)
		if text.unavailable() {
			s.memory.give(a.charged)
			a = answer{short: true}
		}
		f, code, after := judge(a)
		switch {
		case mine.Err() != nil && (a.status/100 != 2 || f != final):
			s.memory.give(a.charged)
			if err := context.Cause(mine); !errors.Is(err, errExpired) {
				return answer{}, err
			}
			return answerOf(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, "the request was not answered within %s", l.Deadline.Sub(l.Created).Round(time.Second))), errExpired
		case a.large:
			s.memory.give(a.charged)
			return answerOf(api.Errorf(http.StatusBadGateway, "answer_too_large", "the answer has more than %s", api.Bytes(s.cfg.MaxAnswer))), nil
		case f == refused || s.unknownYet(code):
			s.memory.give(a.charged)
			refusals++
			_ = sleep(mine, min(pause(refusals, after), 5*time.Second)) // the end of mine is checked above
		case f == failed && failures+1 < s.cfg.Attempts:
			s.memory.give(a.charged)
			failures++
			_ = sleep(mine, pause(failures, after))
		case a.status == 0:
			s.memory.give(a.charged)
			return answerOf(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut (request %s)", l.ID)), nil
		default:
			return a, nil
		}
	}
}

// watched is the body of a request, and records an error of a store that is unavailable for now.
type watched struct {
	in io.Reader

	mu  sync.Mutex // guards err: a server that has answered may still read
	err error
}

// Read implements [io.Reader].
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if store.Passing(err) {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return n, err
}

// Close implements [io.Closer].
func (w *watched) Close() error { return nil }

// unavailable reports whether reading the body failed for now.
func (w *watched) unavailable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

func answerOf(e *api.Error) answer {
	k := &kept{limit: 64 << 10}
	k.header = http.Header{}
	api.WriteError(k, e)
	k.body = k.buf.Bytes()
	return k.answer
}

// keptHeader returns the header of an answer to keep: without fields of its connection or of that moment.
func keptHeader(h http.Header) http.Header {
	out := http.Header{}
	for name, v := range h {
		switch {
		case strings.HasPrefix(name, "X-Ratelimit-"), strings.HasPrefix(name, "Access-Control-"):
		case slices.Contains([]string{"Connection", "Content-Length", "Date", "Keep-Alive", "Transfer-Encoding", "Trailer", "Retry-After", "Retry-After-Ms"}, name):
		default:
			out[name] = v
		}
	}
	return out
}
