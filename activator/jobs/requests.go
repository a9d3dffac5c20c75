package jobs

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// preferences parses Prefer (RFC 7240): whether to answer later, and how long the client would wait first.
func preferences(h http.Header) (async bool, wait time.Duration) {
	for part := range strings.SplitSeq(strings.Join(h.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			async = true
		case "wait":
			if n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`)); err == nil && n > 0 {
				wait = min(time.Duration(n), maxWait/time.Second) * time.Second
			}
		}
	}
	return async, wait
}

const maxWait = time.Minute

func asksLater(h http.Header) bool {
	async, _ := preferences(h)
	return async
}

type laterObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Status  string `json:"status"`
	Created int64  `json:"created_at"`
	Expires int64  `json:"expires_at"` // when the server gives up
	URL     string `json:"url"`
}

// askLater accepts a request whose client does not wait. next gets requests to other paths, and those that it would
// refuse at once.
func (s *Server) askLater(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if path, _ := api.FindPath("", r.URL.Path); path.Model == "" {
		next.ServeHTTP(w, r)
		return
	}
	c, err := s.front.Caller(r)
	if err == nil {
		err = s.takeLater(w, r, c, next)
	}
	if err != nil {
		s.refuse(w, r, err)
	}
}

func (s *Server) takeLater(w http.ResponseWriter, r *http.Request, c activator.Caller, next http.Handler) error {
	patience, err := patience(r.Header, usualPatience)
	if err != nil {
		return err
	}
	body, err := s.front.ReadBody(w, r, c)
	if err != nil {
		return err
	}
	defer body.Release()
	again := func() { // let next refuse it, with its reason
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body.Bytes())), int64(body.Len())
		r.Header.Del("Prefer")
		next.ServeHTTP(w, r)
	}
	model, bad := ask(r, body.Bytes())
	if bad != nil {
		return bad
	}
	if _, bad := s.front.Room(c, model); bad != nil {
		again()
		return nil
	}
	l, err := s.keepRequest(r, c, store.PrefixAsync, body.Bytes(), patience)
	if err != nil {
		return err
	}
	if _, wait := preferences(r.Header); wait > 0 {
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		s.awaitJob(waiting, store.Ref{Owner: l.Owner, ID: l.ID})
		if answered, err := s.store.Job(l.Owner, l.ID); err == nil && answered.Done() {
			w.Header().Set("Preference-Applied", "respond-async, wait="+strconv.Itoa(int(wait.Seconds())))
			out := newTimed(w, r)
			defer out.end()
			return s.writeAnswer(out, r, answered)
		}
	}
	w.Header().Set("Preference-Applied", "respond-async")
	writePending(w, l)
	return nil
}

// keepRequest stores a request under an id with that prefix.
func (s *Server) keepRequest(r *http.Request, c activator.Caller, prefix string, body []byte, patience time.Duration) (store.Job, error) {
	header := ownHeader(r.Header)
	if n := sizeOf(header); n > maxHeader {
		return store.Job{}, api.Errorf(http.StatusRequestHeaderFieldsTooLarge, "", "the header has %d bytes that would be kept: want %d at most", n, maxHeader)
	}
	if err := s.front.Charge(r.Context(), c); err != nil {
		return store.Job{}, err
	}
	j := store.Job{Request: store.Request{Method: r.Method, URI: r.URL.RequestURI(), Header: header}}
	return s.createJob(c, prefix, j, body, patience, s.cfg.MaxLater, "%d requests wait for their answers, as many as may be: try again")
}

func ask(r *http.Request, body []byte) (model string, bad *api.Error) {
	path, _ := api.FindPath("", r.URL.Path)
	var asked parse.Request
	if path.Model == api.ModelInForm {
		media := r.Header.Get("Content-Type")
		if kind, _, err := mime.ParseMediaType(media); err != nil || kind != "multipart/form-data" {
			return "", api.BadRequest("", "the Content-Type is %.80q: want multipart/form-data", media)
		}
		asked, bad = parse.Form(media, body)
	} else {
		asked, bad = parse.JSON(jsonfield.Open(body))
	}
	if bad == nil && (asked.Stream || path.Stream == api.StreamLines && !strings.Contains(string(body), `"stream"`)) {
		bad = api.BadRequest("stream", "a stream can't be answered later: set stream to false, or leave Prefer: respond-async out")
	}
	return asked.Model, bad
}

func patience(h http.Header, usual time.Duration) (time.Duration, error) {
	d, err := activator.TimeLimit(h)
	return min(cmp.Or(d, usual), mostWindow), err
}

// dropped headers are those of the connection or the transport, and secrets that must not be on disk.
var dropped = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization", "Prefer", "X-Request-Timeout", "Connection", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Accept-Encoding", "Expect", "X-Forwarded-For", "X-Request-Id"}

func ownHeader(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range dropped {
		h.Del(name)
	}
	return h
}

const maxHeader = 8 << 10

func sizeOf(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// comeBack is the Retry-After while there is no answer.
const comeBack = time.Second

func writePending(w http.ResponseWriter, l store.Job) {
	url := pathAsync + "/" + l.ID
	h := w.Header()
	h.Set("Location", url)
	h.Set("Retry-After", strconv.Itoa(int(comeBack.Seconds())))
	h["X-Request-Id"] = []string{l.ID}
	api.WriteJSON(w, http.StatusAccepted, laterObject{ID: l.ID, Object: "async", Status: "in_progress", Created: l.Created.Unix(), Expires: l.Deadline.Unix(), URL: url})
}

func (s *Server) showLater(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	l, err := s.findJob(c.Owner(), r.PathValue("id"), store.PrefixAsync)
	if err != nil {
		return err
	}
	if !l.Done() {
		writePending(w, l)
		return nil
	}
	return s.writeAnswer(w, r, l)
}

func (s *Server) writeAnswer(w http.ResponseWriter, r *http.Request, l store.Job) error {
	body, err := s.store.OpenAnswer(l)
	if err != nil {
		return err
	}
	defer body.Close()
	h := w.Header()
	maps.Copy(h, l.AnswerHeader)
	h.Set("Content-Length", strconv.FormatInt(l.Answer.Bytes, 10))
	w.WriteHeader(l.Code)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, body) // the client may have left
	}
	return nil
}

func (s *Server) deleteRequest(prefix, object string) handler {
	return func(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
		owner, id := c.Owner(), r.PathValue("id")
		_, err := s.findJob(owner, id, prefix)
		if err == nil {
			err = s.store.Delete(owner, id)
		}
		if err == nil {
			s.endRequest(owner, id)
		}
		return writeDeleted(w, err, id, object)
	}
}
