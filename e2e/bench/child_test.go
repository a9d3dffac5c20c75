package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestProcess starts programs that get ready, that end before, that say more than is kept, and that do not want to end.
func TestProcess(t *testing.T) {
	sh := func(script string) *exec.Cmd { return exec.CommandContext(t.Context(), "sh", "-c", script) }
	for _, to := range []string{"", ">&2"} {
		p, line, err := Start(sh("echo first "+to+"; echo listening on here "+to+"; exec sleep 600"), "listening on")
		if err != nil || Listening(line) != "here" {
			t.Fatalf("%q, %v", line, err)
		}
		if w := p.Words(); !strings.Contains(w, "first") {
			t.Errorf("its words are %q", w)
		}
		p.Stop()
	}
	if _, _, err := Start(sh("echo nothing; echo the reason >&2"), "listening on"); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("%v: want what it said", err)
	}
	if _, _, err := Start(exec.CommandContext(t.Context(), "/nowhere/program"), "x"); err == nil || !strings.Contains(err.Error(), "/nowhere/program") {
		t.Errorf("%v: want the program's name", err)
	}
	p, _, err := Start(sh("echo ready; i=0; while [ $i -lt 3000 ]; do printf '%01000d\\n' $i; i=$((i+1)); done; echo the end; exec sleep 600"), "ready")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Until(t.Context(), "the end"); err != nil {
		t.Fatal(err)
	}
	if n := len(p.Log()); n < kept || n > 2*kept {
		t.Errorf("%d bytes are kept of what it said", n)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if _, err := p.Until(over, "never"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the end of the context", err)
	}
	p.Kill()
	if _, err := p.Until(t.Context(), "never"); err == nil || !strings.Contains(err.Error(), "ended before it said") {
		t.Errorf("%v: want its end", err)
	}
	p.Stop()
}

// TestFirst reads streams of all kinds: comments do not count, an error is one, as is a stream without an event; one that is cut off, too.
func TestFirst(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/good":
			fmt.Fprintf(w, ": progress=10%%\n\ndata: {\"a\":%s}\n\ndata: [DONE]\n\n", body)
		case "/error":
			fmt.Fprint(w, "data: {\"error\":{}}\n\n")
		case "/none":
			fmt.Fprint(w, ": progress=10%\n\n")
		case "/cut":
			fmt.Fprint(w, "data: 1\n\ndata: 2")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "the reason", http.StatusTeapot)
		}
	}))
	defer server.Close()
	c := NewClient(api.Endpoint(server.URL))
	defer c.Close()
	for path, want := range map[string]struct {
		events string
		fault  string
	}{
		"/good":  {`{"a":{"b":1}} [DONE]`, ""},
		"/error": {"", "has an error"},
		"/none":  {"", "no event"},
		"/cut":   {"1 2", "the stream ended"},
		"/other": {"", "the reason"},
	} {
		began := time.Now()
		var events []string
		at, err := c.First(t.Context(), path, map[string]int{"b": 1}, func(data string) { events = append(events, data) })
		if got := strings.Join(events, " "); got != want.events {
			t.Errorf("%s: events %q, want %q", path, got, want.events)
		}
		if (err == nil) != (want.fault == "") || err != nil && !strings.Contains(err.Error(), want.fault) {
			t.Errorf("%s: %v, want %q", path, err, want.fault)
		}
		if err == nil && at.Before(began) {
			t.Errorf("%s: the first event came before it was asked for", path)
		}
	}
	if err := c.Lines(t.Context(), "/good", nil, nil, func(time.Time, string) error { return io.ErrNoProgress }); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("%v: want the error of who reads", err)
	}
}
