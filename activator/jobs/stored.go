package jobs

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/responses"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

// NeedsKey tells a client that owns nothing why its responses are not stored.
const NeedsKey = "what a client without a key stores would be everybody's: use a key"

// storing returns next extended by stored responses, and by requests that continue from them.
func (s *Server) storing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != responses.Path || s.front.OwnHost(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		c, err := s.front.Caller(r)
		if err != nil { // next refuses it, or the client owns nothing
			next.ServeHTTP(w, r)
			return
		}
		if err := s.serveResponse(w, r, c, next); err != nil {
			w.Header()["X-Request-Id"] = []string{"req_" + rand.Text()}
			api.WriteErrorTo(w, r, explain(err))
		}
	})
}

// serveResponse serves one request of a caller. If it returns an error, it has written nothing.
func (s *Server) serveResponse(w http.ResponseWriter, r *http.Request, c activator.Caller, next http.Handler) error {
	body, err := s.front.ReadBody(w, r, c)
	if err != nil {
		return err
	}
	q, asks, err := responses.Read(body.Bytes())
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
	return s.keeper.Serve(w, r, responses.Turn{Request: q, Owner: c.Owner(), Take: func(n int64) error { return body.Take(r.Context(), n) }}, next)
}

// serveStored serves a line of a batch, or a later request. Its body is complete.
func (s *Server) serveStored(w http.ResponseWriter, r *http.Request, q sent) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.front.ServeLater(w, r, q.caller, q.terms) })
	if r.URL.Path != responses.Path {
		next.ServeHTTP(w, r)
		return
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		r.Body = io.NopCloser(bytes.NewReader(text))
		var asked responses.Request
		var asks bool
		asked, asks, err = responses.Read(text)
		switch {
		case err != nil:
		case !asks:
			next.ServeHTTP(w, r)
			return
		case asked.Background && q.claim == nil:
			err = api.BadRequest("background", "the request is answered later as it is: leave background out")
		default:
			err = s.keeper.Serve(w, r, responses.Turn{Request: asked, Owner: q.caller.Owner(), Claim: q.claim}, next)
		}
	}
	if err != nil {
		api.WriteError(w, explain(err))
	}
}

func (s *Server) showResponse(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	err := s.keeper.Show(w, r, c.Owner(), id)
	if errors.Is(err, store.ErrNotFound) {
		err = s.showBackground(w, c.Owner(), id)
	}
	if errors.Is(err, store.ErrNotFound) { // it may have just ended
		err = s.keeper.Show(w, r, c.Owner(), id)
	}
	return responses.Missing(err, id)
}

func (s *Server) responseItems(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	return responses.Missing(s.keeper.Items(w, r, c.Owner(), id), id)
}

func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	err := s.store.DeleteResponse(c.Owner(), id)
	if errors.Is(err, store.ErrNotFound) {
		err = s.forgetBackground(c.Owner(), id)
	}
	if err != nil {
		return responses.Missing(err, id)
	}
	api.WriteJSON(w, http.StatusOK, deleted{ID: id, Object: "response", Deleted: true})
	return nil
}
