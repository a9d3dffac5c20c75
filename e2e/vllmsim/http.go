package vllmsim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxBody = 64 << 20

var errTooLong error = bad("", "the request needs more KV blocks than there are")

type failure struct {
	status        int
	kind, message string
	param         string
}

func (f *failure) Error() string { return f.message }

func (f *failure) paramOrNull() any {
	if f.param == "" {
		return nil
	}
	return f.param
}

func bad(param, format string, args ...any) *failure {
	return &failure{status: http.StatusBadRequest, kind: "BadRequestError", message: fmt.Sprintf(format, args...), param: param}
}

// said is status 500, in the words of the simulated server.
func said(format string, args ...any) *failure {
	return &failure{status: http.StatusInternalServerError, kind: "InternalServerError", message: fmt.Sprintf(format, args...)}
}

// ServeHTTP answers as the surface does. Before the model is loaded everything is 503.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.fallen.Load() {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-s.ready:
	default:
		if s.cfg.Surface == LlamaCpp {
			write(w, http.StatusServiceUnavailable, llamaFailure(&failure{status: http.StatusServiceUnavailable, message: "Loading model"}))
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable) // a vLLM does not listen then
		return
	}
	if !s.allowed(r) {
		write(w, http.StatusUnauthorized, object{"error": "Unauthorized"})
		return
	}
	s.routes.ServeHTTP(w, r)
}

func (s *Server) allowed(r *http.Request) bool {
	if len(s.cfg.APIKeys) == 0 || s.kind.open(r.URL.Path) {
		return true
	}
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return slices.Contains(s.cfg.APIKeys, given)
}

type object = map[string]any

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has left
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f == nil {
		panic(http.ErrAbortHandler) // the client has left, or the server ends
	}
	write(w, f.status, s.kind.failure(f))
}

// failureOf returns nil for a client that has left.
func failureOf(err error) *failure {
	if f, is := errors.AsType[*failure](err); is {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return said("%v", err)
}

func read(r *http.Request, into any) error {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return bad("", "the body can't be read: %v", err)
	}
	if len(raw) > maxBody {
		return &failure{status: http.StatusRequestEntityTooLarge, kind: "BadRequestError", message: "the body is too large"}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return bad(typed.Field, "1 validation error: field %s: Input should be a valid %s, not a %s", typed.Field, typed.Type, typed.Value)
		}
		return bad("", "1 validation error: JSON decode error: %v", err)
	}
	return nil
}

func (s *Server) generating(h func(*Server, http.ResponseWriter, *http.Request, injected)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a, err := s.Faults.ofRequest(r)
		if err != nil {
			s.fail(w, bad(Header, "%v", err))
			return
		}
		if a.status > 0 {
			s.fail(w, &failure{status: a.status, kind: http.StatusText(a.status), message: "a fault as told"})
			return
		}
		h(s, w, r, a)
	}
}

// id is the client's X-Request-Id, as in vLLM, or a counter.
func (s *Server) id(r *http.Request, prefix string) string {
	if given := r.Header.Get("X-Request-Id"); given != "" && len(given) <= 128 {
		return prefix + given
	}
	return prefix + fmt.Sprintf("%032x", s.ids.Add(1))
}

type events struct {
	w       http.ResponseWriter
	flush   *http.ResponseController
	a       injected
	tokens  int // sent
	started bool
	s       *Server
}

func (s *Server) events(w http.ResponseWriter, a injected) *events {
	return &events{w: w, flush: http.NewResponseController(w), a: a, s: s}
}

var errCut = errors.New("cut as told")

// send sends an event; name is empty for OpenAI's streams.
func (e *events) send(name string, body any) error {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		e.w.Header().Set("Cache-Control", "no-cache")
		if err := e.trouble(0); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	text := "data: " + string(raw) + "\n\n"
	if name != "" {
		text = "event: " + name + "\n" + text
	}
	return e.raw(text)
}

func (e *events) raw(text string) error {
	if _, err := io.WriteString(e.w, text); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if err := e.flush.Flush(); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return nil
}

// tokenSent applies the fault that is due after a token.
func (e *events) tokenSent(r *http.Request) error {
	if e.a.slow > 0 {
		select {
		case <-time.After(e.a.slow):
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
	e.tokens++
	for {
		if at, err := os.ReadFile(e.s.cfg.Pause); err != nil || string(at) != strconv.Itoa(e.tokens) {
			return e.trouble(e.tokens)
		}
		if r.Context().Err() != nil {
			return context.Cause(r.Context())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (e *events) trouble(n int) error {
	switch n {
	case e.a.killed:
		e.s.crash()
		panic(http.ErrAbortHandler)
	case e.a.cut:
		panic(http.ErrAbortHandler)
	case e.a.eof:
		return errCut
	case e.a.errorEvent:
		e.stop(said("a fault as told"))
		return errCut
	}
	return nil
}

func (e *events) stop(err error) {
	f := failureOf(err)
	if f == nil || errors.Is(err, errCut) {
		return
	}
	_ = e.send("", openAIFailure(f))
	_ = e.raw("data: [DONE]\n\n")
}

func query(r *http.Request, name string, otherwise int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, bad(name, "invalid literal for int() with base 10: %q", text)
	}
	return n, nil
}
