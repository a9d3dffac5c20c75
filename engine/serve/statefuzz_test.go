package serve

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
)

// FuzzState: a state that is read gives the same when it is written and read again; everything else is refused.
func FuzzState(f *testing.F) {
	for _, s := range []string{"id:1::0::1", "cmpl-A:17::3:m1:1,2;3;u", "a:1:-5:0:m:0", "a:1:x:0:m:1", "a:1::0:m:", "a:1::0:m:1;u;2", ":::::", "a:1::0:m:99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parseState(text)
		if !ok {
			return
		}
		if s.id == "" || strings.ContainsAny(s.id, "\":;,") || len(s.tokens) == 0 || s.skip != len(s.tokens) || s.cached < 0 {
			t.Fatalf("%q: %+v", text, s)
		}
		again := &state{id: s.id, created: s.created, seed: s.seed, cached: s.cached, mark: s.mark, pending: s.tokens}
		line := strings.TrimSuffix(strings.TrimPrefix(string(again.line(nil)), stateComment), "\n")
		o, ok := parseState(line)
		if !ok || o.id != s.id || o.created != s.created || o.cached != s.cached || o.mark != s.mark || (o.seed == nil) != (s.seed == nil) || len(o.tokens) != len(s.tokens) {
			t.Fatalf("%q: %+v, written %q: %+v", text, s, line, o)
		}
		for i := range s.tokens {
			if s.tokens[i] != o.tokens[i] || s.tokens[i] < 0 {
				t.Fatalf("%q: token %d", text, i)
			}
		}
	})
}

// TestStreamOfAnotherModel: a stream goes on with the model that began it, and is refused by another.
func TestStreamOfAnotherModel(t *testing.T) {
	one := []engine.Request{{N: 1}}
	o := &options{Stream: true}
	read := func(s *Server, text string) (*state, error) {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
		r.Header.Set(stateHeader, text)
		return s.streamState(r, o, one)
	}
	first, err := read(&Server{mark: "m1"}, stateNew)
	if err != nil {
		t.Fatal(err)
	}
	first.id, first.pending = "cmpl-1", []int32{7, 8}
	piece := strings.TrimSuffix(strings.TrimPrefix(string(first.line(nil)), stateComment), "\n")
	if again, err := read(&Server{mark: "m1"}, piece); err != nil || again.mark != "m1" || len(again.tokens) != 2 {
		t.Errorf("the same model: %v, %+v", err, again)
	}
	_, err = read(&Server{mark: "m2"}, piece)
	if e, is := errors.AsType[*Error](err); !is || e.Code != codeStreamCut || e.Status != http.StatusBadRequest {
		t.Errorf("another model: %v, want %s", err, codeStreamCut)
	}
}
