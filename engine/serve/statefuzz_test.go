package serve

import (
	"strings"
	"testing"
)

// FuzzState: a state that is read gives the same when it is written and read again; everything else is refused.
func FuzzState(f *testing.F) {
	for _, s := range []string{"id:1::0:1", "cmpl-A:17::3:1,2;3;u", "a:1:-5:0:0", "a:1:x:0:1", "a:1::0:", "a:1::0:1;u;2", "::::", "a:1::0:99999999999"} {
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
		again := &state{id: s.id, created: s.created, seed: s.seed, cached: s.cached, pending: s.tokens}
		line := strings.TrimSuffix(strings.TrimPrefix(string(again.line(nil)), stateComment), "\n")
		o, ok := parseState(line)
		if !ok || o.id != s.id || o.created != s.created || o.cached != s.cached || (o.seed == nil) != (s.seed == nil) || len(o.tokens) != len(s.tokens) {
			t.Fatalf("%q: %+v, written %q: %+v", text, s, line, o)
		}
		for i := range s.tokens {
			if s.tokens[i] != o.tokens[i] || s.tokens[i] < 0 {
				t.Fatalf("%q: token %d", text, i)
			}
		}
	})
}
