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
	"github.com/rouse-dev/rouse/internal/bell"
)

func (s *Server) runRequest(_, ctx context.Context, owner, id string) {
	claim, err := s.store.Claim(owner, id, false)
	if err == nil {
		defer claim.Close() // if unfinished, the next server takes it over
		err = s.serveClaim(ctx, claim)
	}
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrState), errors.Is(err, store.ErrHeld), errors.Is(err, errLost), errors.Is(err, errClosing):
	case errors.Is(err, errCancelled), errors.Is(err, store.ErrFenced):
		s.metrics.later.WithLabelValues("cancelled").Inc()
	default: // the store will report it again
		s.log.Error("answer a request later", "request", id, "error", err)
	}
}

func (s *Server) serveClaim(ctx context.Context, claim *store.Claim) error {
	l := claim.Job()
	body, err := s.store.OpenRequest(l)
	if err != nil {
		return err
	}
	defer body.Close()
	result := "answered"
	a, err := s.untilAnswered(ctx, claim, body)
	defer func() { s.memory.release(a.charged) }()
	if errors.Is(err, errExpired) {
		result = "expired"
	} else if err != nil {
		return err
	}
	for {
		switch {
		case !store.IsResponse(l.ID):
			err = claim.Answer(a.status, keptHeader(a.header), a.body)
		case a.status/100 != 2: // otherwise it is kept
			err = s.keepUnanswered(claim, "failed", api.ParseError(&http.Response{StatusCode: a.status, Status: http.StatusText(a.status)}, a.body))
		default:
			err = nil
		}
		if err == nil {
			s.metrics.later.WithLabelValues(result).Inc()
			return nil
		} else if errors.Is(err, store.ErrFenced) {
			return err
		}
		s.log.Error("answer waits for the store", "request", l.ID, "error", err)
		if err := bell.Sleep(ctx, retryStore); err != nil {
			return err
		}
	}
}

// untilAnswered returns the answer to a request, whatever its status. The error is the cause of ctx's end, or
// [errExpired], with an answer that reports it.
func (s *Server) untilAnswered(ctx context.Context, claim *store.Claim, body io.ReaderAt) (answer, error) {
	l := claim.Job()
	var c activator.Caller
	if err := json.Unmarshal(l.Caller, &c); err != nil {
		return answerOf(api.Errorf(http.StatusInternalServerError, "", "read who has sent the request: %v", err)), nil
	}
	mine, cancel := context.WithDeadlineCause(ctx, l.Deadline, errExpired)
	defer cancel()
	failures, refusals := 0, 0
	for {
		text := &watched{in: io.NewSectionReader(body, 0, l.Body.Bytes)}
		q := sent{caller: c, terms: activator.Terms{Charged: true}, id: l.ID, uri: l.URI, header: l.Header.Clone(), body: text, size: l.Body.Bytes}
		if store.IsResponse(l.ID) {
			q.claim = claim
		}
		a := s.serveRequest(mine, q)
		if text.unavailable() {
			s.memory.release(a.charged)
			a = answer{short: true}
		}
		f, code, after := judge(a)
		switch {
		case mine.Err() != nil && (a.status/100 != 2 || f != final):
			s.memory.release(a.charged)
			if err := context.Cause(mine); !errors.Is(err, errExpired) {
				return answer{}, err
			}
			return answerOf(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, "the request was not answered within %s", l.Deadline.Sub(l.Created).Round(time.Second))), errExpired
		case a.large:
			s.memory.release(a.charged)
			return answerOf(api.Errorf(http.StatusBadGateway, "answer_too_large", "the answer has more than %s", api.Bytes(s.cfg.MaxAnswer))), nil
		case f == refused || s.unknownYet(code):
			s.memory.release(a.charged)
			refusals++
			_ = bell.Sleep(mine, min(pause(refusals, after), 5*time.Second)) // mine's end is checked above
		case f == failed && failures+1 < attempts:
			s.memory.release(a.charged)
			failures++
			_ = bell.Sleep(mine, pause(failures, after))
		case a.status == 0:
			s.memory.release(a.charged)
			return answerOf(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the answer was cut (request %s)", l.ID)), nil
		default:
			return a, nil
		}
	}
}

// watched is a request's body that records whether the store was unavailable.
type watched struct {
	in io.Reader

	mu  sync.Mutex // guards err: a server that has answered may still read
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if store.Passing(err) {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return n, err
}

func (w *watched) Close() error { return nil }

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

// keptHeader returns the fields of an answer's header to keep.
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
