package jobs

import (
	"errors"
	"net/http"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/responses"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

// A background response is a request that is answered later, with the response's id. Until it ends it is stored as
// such a request, and then as a kept response, whatever its outcome.

const prefixResponse = "resp_"

func (s *Server) takeBackground(w http.ResponseWriter, r *http.Request, c activator.Caller, q responses.Request, body []byte) error {
	if q.Stream {
		return api.BadRequest("stream", "a response in the background can't be streamed: ask for it by its id, or leave background out")
	}
	limit, err := patience(r.Header, s.cfg.Patience)
	if err != nil {
		return err
	}
	path, _ := api.NamedPath(r.URL.Path)
	model, bad := ask(r, path, body)
	if bad != nil {
		return bad
	}
	if _, bad := s.front.Room(c, model); bad != nil {
		return bad
	}
	if err := s.keeper.Exists(c.Owner(), q.Previous); err != nil {
		return err
	}
	id, _ := s.store.NewResponseID()
	l, _, err := s.keepLater(r, c, id, q.Kept(), limit)
	if err != nil {
		return err
	}
	w.Header()["X-Request-Id"] = []string{l.ID}
	api.WriteJSON(w, http.StatusOK, responses.Unfinished(l, body, "queued"))
	return nil
}

// showBackground answers with a response that has not ended.
func (s *Server) showBackground(w http.ResponseWriter, owner, id string) error {
	l, body, err := s.background(owner, id)
	if err != nil {
		return err
	}
	status := "queued"
	s.mu.Lock()
	if s.served[id] != nil || l.Holder != "" {
		status = "in_progress"
	}
	s.mu.Unlock()
	api.WriteJSON(w, http.StatusOK, responses.Unfinished(l, body, status))
	return nil
}

// background returns the request of a response that has not ended, and its body.
func (s *Server) background(owner, id string) (store.Later, []byte, error) {
	l, err := s.store.Later(owner, id)
	if err != nil {
		return l, nil, err
	}
	body, err := s.store.Asked(l)
	return l, body, err
}

// endBackground stores the end of a response whose request was answered with an error.
func (s *Server) endBackground(claim store.Later, a answer) error {
	if a.status/100 == 2 { // it is kept
		return nil
	}
	return s.keepEnd(claim, "failed", api.ParseError(&http.Response{StatusCode: a.status, Status: http.StatusText(a.status)}, a.body))
}

// keepEnd stores a response without an answer.
func (s *Server) keepEnd(claim store.Later, status string, why *api.Error) error {
	body, err := s.store.Asked(claim)
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrFenced
	} else if err != nil {
		return err
	}
	return s.keeper.KeepUnfinished(claim, body, status, why)
}

// cancelResponse cancels a background response. One that has ended is unchanged.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	owner, id := c.Owner(), r.PathValue("id")
	claim, body, err := s.store.ClaimLater(owner, id, true)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return responses.Missing(s.showCancelled(w, r, owner, id), id)
	case err != nil:
		return err
	}
	_ = body.Close() // it was only read
	defer s.endLater(owner, id)
	if err := s.keepEnd(claim, "cancelled", nil); errors.Is(err, store.ErrFenced) { // it was just deleted
		return responses.Missing(store.ErrNotFound, id)
	} else if err != nil {
		return err
	}
	return responses.Missing(s.keeper.Show(w, r, owner, id), id)
}

// showCancelled answers with a response that had ended before the cancellation.
func (s *Server) showCancelled(w http.ResponseWriter, r *http.Request, owner, id string) error {
	background, err := s.keeper.Background(owner, id)
	if err != nil {
		return err
	}
	if !background {
		return api.BadRequest("response_id", "the response %s is not one in the background: it can't be cancelled", id)
	}
	return s.keeper.Show(w, r, owner, id)
}

// forgetBackground deletes a response that has not ended.
func (s *Server) forgetBackground(owner, id string) error {
	if len(id) < len(prefixResponse) || id[:len(prefixResponse)] != prefixResponse { // another kind of request
		return store.ErrNotFound
	}
	if err := s.store.DeleteLater(owner, id); err != nil {
		return err
	}
	s.endLater(owner, id)
	return nil
}
