package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// sink receives CloudEvents as a broker does.
type sink struct {
	mu  sync.Mutex
	got []string // "TYPE SUBJECT BODY"
}

// ServeHTTP takes an event in the binary or the structured form.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := r.Header.Get("Ce-Type") + " " + r.Header.Get("Ce-Subject") + " " + string(body)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json") {
		line = string(body)
	}
	if r.Header.Get("Ce-Specversion") == "1.0" || strings.Contains(line, `"specversion":"1.0"`) {
		s.got = append(s.got, line)
	}
	w.WriteHeader(http.StatusAccepted)
}

// sink: receive CloudEvents, and set K_SINK for the next server.
func sinkCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("sink: %v", errUsage)
	}
	s := &sink{}
	receiver := httptest.NewServer(s)
	ts.Defer(receiver.Close)
	placeOf(ts).sink = s
	ts.Setenv("K_SINK", receiver.URL)
}

// sinkgot WORD …: wait for an event that has every word.
func sinkGot(ts *testscript.TestScript, neg bool, args []string) {
	s := placeOf(ts).sink
	if neg || s == nil || len(args) == 0 {
		ts.Fatalf("sinkgot: %v", errUsage)
	}
	ts.Check(retry(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
	events:
		for _, line := range s.got {
			for _, word := range args {
				if !strings.Contains(line, word) {
					continue events
				}
			}
			return nil
		}
		return fmt.Errorf("no event with %q among the %d that came:\n%s", args, len(s.got), strings.Join(s.got, "\n"))
	}))
}
