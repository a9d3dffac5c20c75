package batch

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/api"
)

// preferences reads Prefer (RFC 7240): whether an answer later is preferred, and how long the client would wait for one now.
func preferences(h http.Header) (async bool, wait time.Duration) {
	for part := range strings.SplitSeq(strings.Join(h.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			async = true
		case "wait":
			if n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`)); err == nil && n > 0 {
				wait = min(time.Duration(n)*time.Second, maxWait)
			}
		}
	}
	return async, wait
}

// maxWait bounds how long a client may wait before it is told to come back.
const maxWait = time.Minute

func asksLater(h http.Header) bool {
	async, _ := preferences(h)
	return async
}

// laterObject is what a client sees of a request that is answered later.
type laterObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Status  string `json:"status"`
	Created int64  `json:"created_at"`
	Expires int64  `json:"expires_at"` // when it is given up
	URL     string `json:"url"`
}

// askLater takes in a request whose client does not wait. next gets what has no other path, or that is refused at once anyway: its
// answer then says why.
func (s *Server) askLater(w http.ResponseWriter, r *http.Request, next http.Handler) {
	path, _ := api.NamedPath(r.URL.Path)
	if path.Model == api.ModelNowhere {
		next.ServeHTTP(w, r)
		return
	}
	c, err := s.front.Caller(r)
	if err == nil {
		err = s.takeLater(w, r, c, path, next)
	}
	if err != nil {
		if api.AsError(err).Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.Header()["X-Request-Id"] = []string{"req_" + rand.Text()}
		api.WriteErrorTo(w, r, explain(err))
	}
}

func (s *Server) takeLater(w http.ResponseWriter, r *http.Request, c activator.Caller, path api.ClientPath, next http.Handler) error {
	patience, err := patience(r.Header, s.cfg.Patience)
	if err != nil {
		return err
	}
	body, err := s.front.ReadBody(w, r, c)
	if err != nil {
		return err
	}
	defer body.Release()
	again := func() { // it is refused, for a reason that next knows how to say
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body.Bytes())), int64(body.Len())
		r.Header.Del("Prefer")
		next.ServeHTTP(w, r)
	}
	model, bad := ask(r, path, body.Bytes())
	if bad != nil {
		return bad
	}
	if _, bad := s.front.Room(c, model); bad != nil {
		again()
		return nil
	}
	owner := c.Owner()
	if n := s.unanswered(owner); n >= s.cfg.MaxLater {
		return api.Errorf(http.StatusTooManyRequests, api.CodeRateLimit, "%d requests wait for their answers, as many as may be: try again", n).WithRetryAfter(time.Minute)
	}
	caller, err := json.Marshal(c)
	if err != nil {
		return err
	}
	l, err := s.store.NewLater(store.Later{Owner: owner, Caller: caller, Method: r.Method, URI: r.URL.RequestURI(), Header: ownHeader(r.Header)}, body.Bytes(), patience)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.asked = append(s.asked, l)
	done := make(chan struct{})
	s.done[l.ID] = done
	s.mu.Unlock()
	s.stir()
	if _, wait := preferences(r.Header); wait > 0 {
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		select {
		case <-done:
			if answered, err := s.store.Later(owner, l.ID); err == nil && answered.Done() {
				w.Header().Set("Preference-Applied", "respond-async, wait="+strconv.Itoa(int(wait.Seconds())))
				return s.writeAnswer(w, r, answered)
			}
		case <-waiting.Done():
		}
	}
	w.Header().Set("Preference-Applied", "respond-async")
	writePending(w, l)
	return nil
}

// ask reads what must be known of a body: the model. A stream can't be answered later.
func ask(r *http.Request, path api.ClientPath, body []byte) (model string, bad *api.Error) {
	var asked parse.Request
	if path.Model == api.ModelInForm {
		media := r.Header.Get("Content-Type")
		if kind, _, err := mime.ParseMediaType(media); err != nil || kind != "multipart/form-data" {
			return "", api.BadRequest("", "the Content-Type is %.80q: want multipart/form-data", media)
		}
		asked, bad = parse.Form(media, body)
	} else {
		asked, bad = parse.JSON(body)
	}
	if bad == nil && (asked.Stream || path.Stream == api.StreamLines && !strings.Contains(string(body), `"stream"`)) {
		bad = api.BadRequest("stream", "a stream can't be answered later: set stream to false, or leave Prefer: respond-async out")
	}
	return asked.Model, bad
}

// patience is how long a request may go without an answer.
func patience(h http.Header, usual time.Duration) (time.Duration, error) {
	v := h.Get(headerTimeout)
	if v == "" {
		return usual, nil
	}
	d, err := time.ParseDuration(v)
	if seconds, bad := strconv.ParseFloat(v, 64); bad == nil {
		d, err = time.Duration(min(max(seconds, 0), 1e9)*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return 0, api.BadRequest("", "the header %s is %.40q: want seconds, or a duration such as 1m30s", headerTimeout, v)
	}
	return min(d, mostWindow), nil
}

// headerTimeout is the activator's: how long a client waits for the whole answer.
const headerTimeout = "X-Request-Timeout"

// dropped are headers that a request does not keep: those of its connection, what it is answered by, and what nobody may read on a disk.
var dropped = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization", "Prefer", headerTimeout, "Connection", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Accept-Encoding", "Expect", "X-Forwarded-For", "X-Request-Id"}

// ownHeader is the header of a request that is served later.
func ownHeader(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range dropped {
		h.Del(name)
	}
	return h
}

// unanswered is how many of an owner's requests have no answer.
func (s *Server) unanswered(owner string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.asked {
		if l.Owner == owner {
			n++
		}
	}
	for _, r := range s.served {
		if r.owner == owner {
			n++
		}
	}
	return n
}

// comeBack is when a client is asked to look again.
const comeBack = time.Second

// writePending says that there is no answer yet.
func writePending(w http.ResponseWriter, l store.Later) {
	url := pathAsync + "/" + l.ID
	h := w.Header()
	h.Set("Location", url)
	h.Set("Retry-After", strconv.Itoa(int(comeBack.Seconds())))
	h["X-Request-Id"] = []string{l.ID}
	api.WriteJSON(w, http.StatusAccepted, laterObject{ID: l.ID, Object: "async", Status: "in_progress", Created: l.Created.Unix(), Expires: l.Deadline.Unix(), URL: url})
}

// noLater says which request is not there.
func noLater(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return &api.Error{Status: http.StatusNotFound, Param: "id", Message: fmt.Sprintf("there is no request %.80q", id)}
	}
	return err
}

func (s *Server) showLater(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	l, err := s.store.Later(c.Owner(), r.PathValue("id"))
	if err != nil {
		return noLater(err, r.PathValue("id"))
	}
	if !l.Done() {
		writePending(w, l)
		return nil
	}
	return s.writeAnswer(w, r, l)
}

// writeAnswer sends the answer that is kept: its status, its header and its body.
func (s *Server) writeAnswer(w http.ResponseWriter, r *http.Request, l store.Later) error {
	body, err := s.store.Answer(l)
	if err != nil {
		return noLater(err, l.ID)
	}
	defer body.Close()
	h := w.Header()
	maps.Copy(h, l.Answer)
	h.Set("Content-Length", strconv.FormatInt(l.Bytes, 10))
	w.WriteHeader(l.Status)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, body) // the client may have left: nothing to do about it
	}
	return nil
}

// deleteLater forgets a request and its answer. One that runs is ended.
func (s *Server) deleteLater(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	if err := s.store.DeleteLater(c.Owner(), id); err != nil {
		return noLater(err, id)
	}
	s.mu.Lock()
	s.asked = slices.DeleteFunc(s.asked, func(l store.Later) bool { return l.ID == id })
	if run := s.served[id]; run != nil {
		run.cancel(errCancelled)
	} else if done := s.done[id]; done != nil {
		close(done)
		delete(s.done, id)
	}
	s.mu.Unlock()
	api.WriteJSON(w, http.StatusOK, deleted{ID: id, Object: "async", Deleted: true})
	return nil
}

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
