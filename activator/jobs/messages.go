package jobs

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/activator"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

const endpointMessages = "/v1/messages"

// usualWindow is Anthropic's completion window.
const usualWindow = 24 * time.Hour

type messagesObject struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Status   string         `json:"processing_status"`
	Counts   messagesCounts `json:"request_counts"`
	Ended    *time.Time     `json:"ended_at"`
	Created  time.Time      `json:"created_at"`
	Expires  time.Time      `json:"expires_at"`
	Archived *time.Time     `json:"archived_at"`
	Cancel   *time.Time     `json:"cancel_initiated_at"`
	Results  *string        `json:"results_url"`
}

// Until the batch has ended, all its lines count as processing, as at Anthropic.
type messagesCounts struct {
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Errored    int `json:"errored"`
	Cancelled  int `json:"canceled"`
	Expired    int `json:"expired"`
}

func messagesOf(r *http.Request, b store.Job) messagesObject {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	o := messagesObject{ID: b.ID, Type: "message_batch", Status: "in_progress", Created: b.Created.UTC(), Expires: b.Deadline.UTC(), Cancel: at(b.CancelAsked)}
	switch {
	case !b.Done():
		if o.Counts.Processing = b.Total; b.Status == store.Cancelling {
			o.Status = "canceling"
		}
		return o
	case b.Status == store.Cancelled:
		o.Counts.Cancelled = b.Total - b.Completed - b.Failed + b.Abandoned
	default:
		o.Counts.Expired = b.Abandoned
	}
	o.Status, o.Ended = "ended", at(b.Ended)
	o.Counts.Succeeded, o.Counts.Errored = b.Completed, b.Total-b.Completed-o.Counts.Cancelled-o.Counts.Expired
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	url := scheme + "://" + r.Host + pathMessages + "/" + b.ID + "/results"
	o.Results = &url
	return o
}

func (s *Server) createMessages(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	window, err := patience(r.Header, usualWindow)
	if err != nil {
		return err
	}
	n := 0
	kept, err := s.receiveFile(w, r, c, s.cfg.MaxFile, func(in io.Reader, file *store.Upload) (name, purpose string, keep time.Duration, err error) {
		n, err = s.readMessages(in, file)
		return "requests.jsonl", store.MessagesInput, 0, err
	})
	if err != nil {
		return err
	}
	b, err := s.newBatch(c, store.PrefixMessages, store.Batch{Messages: true, Input: kept.ID, Endpoint: endpointMessages, Window: window.String(), Total: n}, max(window, leastWindow))
	if err != nil {
		err = errors.Join(err, s.store.DeleteFile(c.Owner(), kept.ID))
	}
	return writeJob(w, r, err, b, messagesOf)
}

// As at Anthropic.
const (
	usualMessages = 20
	mostMessages  = 1000
)

func (s *Server) listMessages(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	v := r.URL.Query()
	limit, err := activator.Limit(v, usualMessages, mostMessages)
	if err != nil {
		return err
	}
	q, from := store.Query{After: v.Get("after_id"), Limit: limit}, "after_id"
	if before := v.Get("before_id"); before != "" {
		q.After, q.Oldest, from = before, true, "before_id"
	}
	all, more, err := s.store.Jobs(c.Owner(), store.PrefixMessages, q)
	if errors.Is(err, store.ErrNotFound) {
		return api.BadRequest(from, "there is no message batch %.80q to go on from", q.After)
	} else if err != nil {
		return err
	}
	if q.Oldest { // Anthropic's lists have the newest first
		slices.Reverse(all)
	}
	p := activator.PageOf(all, more, func(b store.Job) messagesObject { return messagesOf(r, b) }, jobID)
	p.Object = ""
	api.WriteJSON(w, http.StatusOK, p)
	return nil
}

func (s *Server) messageResults(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	b, err := s.findJob(c.Owner(), r.PathValue("id"), store.PrefixMessages)
	switch {
	case err != nil:
		return err
	case !b.Done():
		return api.Errorf(http.StatusNotFound, "", "the message batch %s has not ended: its results are there when it has", b.ID)
	}
	var parts []io.Reader
	for _, part := range []struct {
		file string
		size int64
	}{{b.OutID, b.OutBytes}, {b.ErrID, b.ErrBytes}} {
		if part.size == 0 {
			continue
		}
		body, _, err := s.store.OpenFile(c.Owner(), part.file)
		if err != nil {
			return err
		}
		defer body.Close()
		parts = append(parts, body)
	}
	w.Header().Set("Content-Type", "application/x-jsonl")
	w.Header().Set("Content-Length", strconv.FormatInt(b.OutBytes+b.ErrBytes, 10))
	_, _ = io.Copy(w, io.MultiReader(parts...)) // the client may have left
	return nil
}

func (s *Server) deleteMessages(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	_, err := s.findJob(c.Owner(), id, store.PrefixMessages)
	if err == nil {
		err = s.store.Delete(c.Owner(), id)
	}
	if errors.Is(err, store.ErrState) {
		return api.Errorf(http.StatusConflict, "", "the message batch %s has not ended: cancel it first", id)
	} else if err == nil {
		api.WriteJSON(w, http.StatusOK, map[string]string{"id": id, "type": "message_batch_deleted"})
	}
	return err
}

func (s *Server) dropInput(b store.Job) {
	if !b.Messages {
		return
	}
	if err := s.store.DeleteFile(b.Owner, b.Input); err != nil && !errors.Is(err, store.ErrNotFound) {
		s.log.Warn("delete the requests of an ended batch: they stay until they expire", "batch", b.ID, "error", err)
	}
}

type messageResult struct {
	ID     string `json:"custom_id"`
	Result any    `json:"result"`
}

func messageText(id string, ok bool, body []byte) []byte {
	if ok {
		return text(messageResult{id, struct {
			Type    string          `json:"type"`
			Message json.RawMessage `json:"message"`
		}{"succeeded", raw(body)}})
	}
	var failed struct{ Type string }
	if json.Unmarshal(body, &failed) != nil || failed.Type != "error" {
		body = api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "%.500s", body).Messages()
	}
	return errored(id, body)
}

func errored(id string, body []byte) []byte {
	return text(messageResult{id, struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
	}{"errored", raw(body)}})
}

func messageFailure(id, code, message string) []byte {
	switch code {
	case "batch_cancelled":
		return text(messageResult{id, map[string]string{"type": "canceled"}})
	case "batch_expired":
		return text(messageResult{id, map[string]string{"type": "expired"}})
	}
	return errored(id, api.Errorf(http.StatusBadGateway, code, "%s", message).Messages())
}
