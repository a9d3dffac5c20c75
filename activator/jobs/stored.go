package jobs

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/activator"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

// NeedsKey is why the responses of a client without a key are not stored.
const NeedsKey = "what a client without a key stores would be everybody's: use a key"

func (s *Server) withStoredResponses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != responsesPath || s.front.OwnHost(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		c, err := s.front.Caller(r)
		if err != nil { // next refuses it, or the client owns nothing
			next.ServeHTTP(w, r)
			return
		}
		if err := s.serveResponse(w, r, c, next); err != nil {
			s.refuse(w, r, err)
		}
	})
}

// serveResponse has written nothing if it returns an error.
func (s *Server) serveResponse(w http.ResponseWriter, r *http.Request, c activator.Caller, next http.Handler) error {
	body, err := s.front.ReadBody(w, r, c)
	if err != nil {
		return err
	}
	q, asks, err := readResponseRequest(body.Bytes())
	switch {
	case err != nil:
		body.Release()
		return err
	case !asks: // next reads the body again
		r.Body, r.ContentLength, r.TransferEncoding = body.Reader(), int64(body.Len()), nil
		defer r.Body.Close()
		body.Release()
		next.ServeHTTP(w, r)
		return nil
	}
	defer body.Release()
	if q.Background {
		return s.takeBackground(w, r, c, q, body.Bytes())
	}
	return s.keeper.Serve(w, r, turn{responseRequest: q, Owner: c.Owner(), Take: func(n int64) error { return body.Take(r.Context(), n) }}, next)
}

// serveStored serves a line of a batch, or a later request.
func (s *Server) serveStored(w http.ResponseWriter, r *http.Request, q sent) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front.ServeLater(w, r, q.caller, q.terms) })
	if r.URL.Path != responsesPath {
		next.ServeHTTP(w, r)
		return
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(text))
		var asked responseRequest
		var asks bool
		asked, asks, err = readResponseRequest(text)
		switch {
		case err != nil:
		case !asks:
			next.ServeHTTP(w, r)
			return
		case asked.Background && q.claim == nil:
			err = api.BadRequest("background", "the request is answered later as it is: leave background out")
		default:
			err = s.keeper.Serve(w, r, turn{responseRequest: asked, Owner: q.caller.Owner(), Claim: q.claim}, next)
		}
	}
	if err != nil {
		api.WriteError(w, explain(err))
	}
}

func (s *Server) showResponse(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	if v := r.URL.Query().Get("stream"); v != "" && v != "false" {
		return api.BadRequest("stream", "the events of a stored response are not kept, so that it can't be had as a stream: leave stream out")
	}
	id := r.PathValue("id")
	err := s.showState(w, c.Owner(), id)
	if errors.Is(err, store.ErrNotFound) { // it may have just ended
		err = s.showState(w, c.Owner(), id)
	}
	return err
}

func (s *Server) showState(w http.ResponseWriter, owner, id string) error {
	j, err := s.findJob(owner, id, store.PrefixResponse)
	if err != nil {
		return err
	}
	if j.Done() {
		return s.keeper.Show(w, j)
	}
	body, err := s.store.ReadRequest(j)
	if err != nil {
		return err
	}
	status := "queued"
	s.mu.Lock()
	if s.requests.running[id] != nil || j.Holder != "" {
		status = "in_progress"
	}
	s.mu.Unlock()
	api.WriteJSON(w, http.StatusOK, unfinished(j, body, status, nil))
	return nil
}

func (s *Server) takeBackground(w http.ResponseWriter, r *http.Request, c activator.Caller, q responseRequest, body []byte) error {
	if q.Stream {
		return api.BadRequest("stream", "a response in the background can't be streamed: ask for it by its id, or leave background out")
	}
	limit, err := patience(r.Header, usualPatience)
	if err != nil {
		return err
	}
	model, bad := ask(r, body)
	if bad != nil {
		return bad
	}
	if _, bad := s.front.Room(c, model); bad != nil {
		return bad
	}
	if err := s.keeper.goesOn(c.Owner(), q); err != nil {
		return err
	}
	j, err := s.keepRequest(r, c, store.PrefixResponse, q.Kept(), limit)
	if err != nil {
		return err
	}
	w.Header()["X-Request-Id"] = []string{j.ID}
	api.WriteJSON(w, http.StatusOK, unfinished(j, body, "queued", nil))
	return nil
}

func (s *Server) keepUnanswered(claim *store.Claim, status string, why *api.Error) error {
	body, err := s.store.ReadRequest(claim.Job())
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrFenced
	} else if err != nil {
		return err
	}
	return s.keeper.KeepUnfinished(claim, body, status, why)
}

func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	owner, id := c.Owner(), r.PathValue("id")
	j, err := s.findJob(owner, id, store.PrefixResponse)
	switch {
	case err != nil:
		return err
	case j.Done() && !j.Background:
		return api.BadRequest("response_id", "the response %s is not one in the background: it can't be cancelled", id)
	}
	claim, err := s.store.Claim(owner, id, true)
	if err == nil {
		defer claim.Close()
		defer s.endRequest(owner, id)
		err = s.keepUnanswered(claim, store.Cancelled, nil)
	}
	switch {
	case errors.Is(err, store.ErrFenced): // it was just deleted
		return store.ErrNotFound
	case err != nil && !errors.Is(err, store.ErrState):
		return err
	}
	return s.showState(w, owner, id)
}
