package jobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

// Endpoints are the paths that a batch's lines may request.
var Endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

type batchObject struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Endpoint   string            `json:"endpoint"`
	Model      string            `json:"model,omitempty"`
	Errors     *faults           `json:"errors"`
	Input      string            `json:"input_file_id"`
	Window     string            `json:"completion_window"`
	Status     string            `json:"status"`
	Output     *string           `json:"output_file_id"`
	ErrorFile  *string           `json:"error_file_id"`
	Created    int64             `json:"created_at"`
	InProgress *int64            `json:"in_progress_at"`
	Expires    int64             `json:"expires_at"`
	Finalizing *int64            `json:"finalizing_at"`
	Completed  *int64            `json:"completed_at"`
	Failed     *int64            `json:"failed_at"`
	Expired    *int64            `json:"expired_at"`
	Cancelling *int64            `json:"cancelling_at"`
	Cancelled  *int64            `json:"cancelled_at"`
	Counts     counts            `json:"request_counts"`
	Usage      usage             `json:"usage"`
	Metadata   map[string]string `json:"metadata"`
}

type counts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

type usage struct {
	Input   int64 `json:"input_tokens"`
	Details struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

type faults struct {
	Object string  `json:"object"`
	Data   []fault `json:"data"`
}

type fault struct {
	Code    string  `json:"code"`
	Line    *int    `json:"line"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

func batchOf(_ *http.Request, b store.Job) batchObject {
	at := func(t time.Time) *int64 {
		if t.IsZero() {
			return nil
		}
		n := t.Unix()
		return &n
	}
	o := batchObject{ID: b.ID, Object: "batch", Endpoint: b.Endpoint, Model: b.Model, Input: b.Input, Window: b.Window, Status: b.Status,
		Created: b.Created.Unix(), Expires: b.Deadline.Unix(), InProgress: at(b.Began), Finalizing: at(b.Finalized), Cancelling: at(b.CancelAsked),
		Counts: counts{Total: b.Total, Completed: b.Completed, Failed: b.Failed}, Metadata: b.Metadata}
	o.Usage.Input, o.Usage.Output, o.Usage.Total = b.Tokens.Input, b.Tokens.Output, b.Tokens.Input+b.Tokens.Output
	o.Usage.Details.Cached, o.Usage.OutputDetails.Reasoning = b.Tokens.Cached, b.Tokens.Reasoning
	switch b.Status {
	case store.Completed:
		o.Completed = at(b.Ended)
	case store.Failed:
		o.Failed = at(b.Ended)
	case store.Expired:
		o.Expired = at(b.Ended)
	case store.Cancelled:
		o.Cancelled = at(b.Ended)
	}
	if b.Done() && b.OutBytes > 0 {
		o.Output = &b.OutID
	}
	if b.Done() && b.ErrBytes > 0 {
		o.ErrorFile = &b.ErrID
	}
	if len(b.Faults) > 0 {
		o.Errors = &faults{Object: "list"}
		for _, f := range b.Faults {
			w := fault{Code: f.Code, Message: f.Message}
			if f.Line > 0 {
				w.Line = &f.Line
			}
			if f.Param != "" {
				w.Param = &f.Param
			}
			o.Errors.Data = append(o.Errors.Data, w)
		}
	}
	return o
}

type wanted struct {
	Input    string            `json:"input_file_id"`
	Endpoint string            `json:"endpoint"`
	Window   string            `json:"completion_window"`
	Metadata map[string]string `json:"metadata"`
	Keep     *struct {
		Anchor  string      `json:"anchor"`
		Seconds json.Number `json:"seconds"`
	} `json:"output_expires_after"`
}

func (s *Server) createBatch(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	var want wanted
	if err := readJSON(w, r, &want); err != nil {
		return err
	}
	window, keep, err := want.check()
	if err != nil {
		return err
	}
	owner := c.Owner()
	f, err := s.store.File(owner, want.Input)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return api.BadRequest("input_file_id", "there is no file %.80q", want.Input)
	case err != nil:
		return err
	case f.Purpose != purposeBatch:
		return api.BadRequest("input_file_id", "the file %s has the purpose %s: want batch", f.ID, f.Purpose)
	}
	b, err := s.newBatch(c, store.PrefixBatch, store.Batch{Input: f.ID, Endpoint: want.Endpoint, Window: want.Window, Metadata: want.Metadata, KeepOutput: keep}, window)
	return writeJob(w, r, err, b, batchOf)
}

func (s *Server) newBatch(c activator.Caller, prefix string, b store.Batch, window time.Duration) (store.Job, error) {
	return s.createJob(c, prefix, store.Job{Batch: b}, nil, window, s.cfg.MaxBatches, "%d batches have not ended, as many as may be: wait for one, or cancel it")
}

func absent(param string) *api.Error {
	return &api.Error{Status: http.StatusBadRequest, Param: param, Code: "missing_required_parameter", Message: "the field " + param + " is missing"}
}

// As at OpenAI.
const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

func checkMetadata(pairs map[string]string) error {
	if len(pairs) > maxPairs {
		return api.BadRequest("metadata", "metadata has %d pairs: want %d at most", len(pairs), maxPairs)
	}
	for k, v := range pairs {
		if utf8.RuneCountInString(k) > maxKey || utf8.RuneCountInString(v) > maxValue {
			return api.BadRequest("metadata", "metadata %.80q is too long: want keys of %d characters at most, and values of %d", k, maxKey, maxValue)
		}
	}
	return nil
}

func (q *wanted) check() (window, keep time.Duration, err error) {
	switch {
	case q.Input == "":
		return 0, 0, absent("input_file_id")
	case q.Endpoint == "":
		return 0, 0, absent("endpoint")
	case q.Window == "":
		return 0, 0, absent("completion_window")
	case !slices.Contains(Endpoints, q.Endpoint):
		return 0, 0, api.BadRequest("endpoint", "the endpoint is %.80q: want one of %s", q.Endpoint, strings.Join(Endpoints, ", "))
	}
	if err := checkMetadata(q.Metadata); err != nil {
		return 0, 0, err
	}
	if window, err = parseWindow(q.Window); err != nil {
		return 0, 0, err
	}
	if q.Keep != nil {
		keep, err = keepFor(q.Keep.Anchor, cmp.Or(q.Keep.Seconds.String(), "0"), "output_expires_after")
	}
	return window, keep, err
}

const (
	leastWindow = time.Minute
	mostWindow  = 30 * 24 * time.Hour
)

func parseWindow(text string) (time.Duration, error) {
	d, err := api.ParseDuration(text)
	if err != nil || d < leastWindow || d > mostWindow {
		return 0, api.BadRequest("completion_window", "completion_window is %.40q: want a duration from 1m to 30d, such as 24h", text)
	}
	return d, nil
}

func (s *Server) listBatches(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	q, err := query(r.URL.Query(), 20, 100)
	if err != nil {
		return err
	}
	list, more, err := s.store.Jobs(c.Owner(), store.PrefixBatch, q)
	if errors.Is(err, store.ErrNotFound) {
		return api.BadRequest("after", "there is no batch %.80q to go on after", q.After)
	} else if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, activator.PageOf(list, more, func(b store.Job) batchObject { return batchOf(r, b) }, jobID))
	return nil
}

func jobID(b store.Job) string { return b.ID }

func (s *Server) findJob(owner, id, prefix string) (store.Job, error) {
	if !strings.HasPrefix(id, prefix) {
		return store.Job{}, store.ErrNotFound
	}
	return s.store.Job(owner, id)
}

func (s *Server) cancelJob(owner, id, prefix string) (store.Job, error) {
	b, err := s.findJob(owner, id, prefix)
	if err == nil {
		b, err = s.store.Cancel(owner, id)
	}
	if errors.Is(err, store.ErrState) {
		return b, api.Errorf(http.StatusConflict, "", "the batch %s is %s: it can't be cancelled any more", id, b.Status)
	} else if err != nil {
		return b, err
	}
	s.mu.Lock()
	if run := s.batches.running[id]; run != nil {
		run.cancel(errCancelled)
	} else if s.batches.waiting.remove(owner, id) {
		s.batches.hurry.add(owner, id)
	}
	s.mu.Unlock()
	s.work.Ring()
	return b, nil
}
