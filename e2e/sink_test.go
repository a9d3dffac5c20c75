package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sink receives CloudEvents as a broker does.
type sink struct {
	mu     sync.Mutex
	got    []string // "TYPE SUBJECT BODY"
	faults []error  // events that are not as docs/events says
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
	e := struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}{r.Header.Get("Ce-Type"), body}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json") {
		line = string(body)
		if err := json.Unmarshal(body, &e); err != nil {
			s.faults = append(s.faults, fmt.Errorf("an event is no JSON: %w", err))
		}
	}
	if err := asDocumented(e.Type, e.Data); err != nil {
		s.faults = append(s.faults, err)
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

// asDocumented checks the data of an event against the schema of its type in docs/events.
func asDocumented(of string, data []byte) error {
	schema, err := jsonschema.NewCompiler().Compile("../docs/events/" + of + ".json")
	if err != nil {
		return fmt.Errorf("event of type %q: %w", of, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		return fmt.Errorf("event of type %q is not as documented: %w\n%s", of, err, data)
	}
	return nil
}

// check says what was wrong with the events that came.
func (s *sink) check() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.faults...)
}
