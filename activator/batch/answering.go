package batch

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
	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/api"
)

// startLater starts the requests that may be served now, in the order in which they came.
func (s *Server) startLater(ctx context.Context, all *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.asked) > 0 && len(s.served) < s.cfg.Later {
		l := s.asked[0]
		s.asked = s.asked[1:]
		mine, cancel := context.WithCancelCause(ctx)
		s.served[l.ID] = &running{owner: l.Owner, cancel: cancel}
		all.Go(func() {
			s.serveLater(mine, l)
			cancel(nil)
			s.mu.Lock()
			delete(s.served, l.ID)
			if done := s.done[l.ID]; done != nil {
				close(done)
				delete(s.done, l.ID)
			}
			s.metrics.waiting.Set(float64(len(s.served)))
			s.mu.Unlock()
			s.stir()
		})
	}
	s.metrics.waiting.Set(float64(len(s.served)))
}

// serveLater serves a request until it is answered, its time is up, or ctx ends.
func (s *Server) serveLater(ctx context.Context, l store.Later) {
	claim, body, err := s.store.ClaimLater(l.Owner, l.ID)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrState) {
		return
	} else if err != nil {
		s.log.Error("a request can't be answered later", "request", l.ID, "error", err)
		return
	}
	defer body.Close()
	result := "answered"
	a, err := s.untilAnswered(ctx, claim, body)
	switch {
	case errors.Is(err, errExpired):
		result = "expired"
	case errors.Is(err, errCancelled):
		s.metrics.later.WithLabelValues("cancelled").Inc()
		return
	case err != nil: // the next server takes it up
		return
	}
	for {
		err := s.store.FinishLater(claim, a.status, keptHeader(a.header), a.body)
		switch {
		case err == nil:
			s.metrics.later.WithLabelValues(result).Inc()
			return
		case errors.Is(err, store.ErrFenced):
			s.metrics.later.WithLabelValues("cancelled").Inc()
			return
		}
		s.log.Error("an answer waits for room in the store", "request", l.ID, "error", err)
		if sleep(ctx, retryStore) != nil {
			return
		}
	}
}

// untilAnswered is the answer of a request, whatever it says. The error is the cause of ctx's end, without an answer, or [errExpired] with one
// that says so.
func (s *Server) untilAnswered(ctx context.Context, l store.Later, body io.ReaderAt) (answer, error) {
	var c activator.Caller
	if err := json.Unmarshal(l.Caller, &c); err != nil {
		return answerOf(api.Errorf(http.StatusInternalServerError, "", "read who has sent the request: %v", err)), nil
	}
	mine, cancel := context.WithDeadlineCause(ctx, l.Deadline, errExpired)
	defer cancel()
	failures, refusals := 0, 0
	for {
		a := s.serve(mine, sent{caller: c, id: l.ID, uri: l.URI, header: l.Header.Clone(), body: io.NopCloser(io.NewSectionReader(body, 0, l.Bytes)), size: l.Bytes})
		if mine.Err() != nil && a.status/100 != 2 {
			if err := context.Cause(mine); !errors.Is(err, errExpired) {
				return a, err
			}
			return answerOf(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, "the request was not answered within %s", l.Deadline.Sub(l.Created).Round(time.Second))), errExpired
		}
		if a.large {
			return answerOf(api.Errorf(http.StatusBadGateway, "answer_too_large", "the answer has more than %s", api.Bytes(s.cfg.MaxAnswer))), nil
		}
		f, code, after := judge(a)
		if s.unknownYet(code) {
			f = refused
		}
		n := refusals
		switch f {
		case final:
			return a, nil
		case refused:
			refusals++
		case failed:
			if failures++; failures >= s.cfg.Attempts {
				if a.status == 0 {
					a = answerOf(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut (request %s)", l.ID))
				}
				return a, nil
			}
			n = failures
		}
		_ = sleep(mine, min(pause(n, after), 5*time.Second)) // its end is seen above
	}
}

// answerOf is an error as an answer.
func answerOf(e *api.Error) answer {
	k := &kept{limit: 64 << 10}
	k.header = http.Header{}
	api.WriteError(k, e)
	k.body = k.buf.Bytes()
	return k.answer
}

// keptHeader is the header of an answer that is kept: without that of its connection, and what was so only then.
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
