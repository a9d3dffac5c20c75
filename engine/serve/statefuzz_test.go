package serve

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/sample"
)

// ownID matches valid ids: they are put into JSON without escapes.
var ownID = regexp.MustCompile(`^[0-9A-Za-z-]+$`)

// FuzzState checks that a valid state is the same after it was written and read again, and that everything else is
// refused.
func FuzzState(f *testing.F) {
	for _, s := range []string{"id:1::0::1", "cmpl-A:17::3:m1:1,2;3;u", "a:1:-5:0:m:0", "a:1:x:0:m:1", "a:1::0:m:", "a:1::0:m:1;u;2", ":::::", "a:1::0:m:99999999999"} {
		f.Add(s, byte(1), false)
	}
	for _, s := range []string{"a:1::0:m:0=5/1;1=2,3;0=4;u", "a:1::0:m:1=2", "a:1::0:m:2=2", "a:1::0:m:0=1/2;0=1/2", "a:1::0:m:0=1;u", "a:1::0:m:1"} {
		f.Add(s, byte(2), false)
	}
	for _, s := range []string{"a:1::0:m:1*2,3*zz*4*5", "a:1::0:m:1*1z141z3*1*0;u", "a:1::0:m:1*", "a:1::0:m:1*1*2", "a:1::0:m:1*1*-2*3", "a:1::0:m:1*zzzzzzzz"} {
		f.Add(s, byte(1), true)
	}
	for _, s := range []string{"a\tb:1::0:m:1", "a:1::-1:m:1", "a:99999999999999999999::0:m:1", "a:1:99999999999999999999:0:m:1", "a:1::99999999999999999999:m:1", "a:1::0:m:-1", "a:1::0:m:0=9223372036854775808/1"} {
		f.Add(s, byte(1), false)
	}
	f.Fuzz(func(t *testing.T, text string, texts byte, scored bool) {
		texts = max(1, texts)
		s, ok := parseState(text, int(texts), scored)
		if !ok {
			return
		}
		if s.id == "" || !ownID.MatchString(s.id) || len(s.texts) != int(texts) || !s.resumed {
			t.Fatalf("%q: %+v", text, s)
		}
		again := &state{id: s.id, created: s.created, seed: s.seed, mark: s.mark, scored: scored, texts: make([]known, texts)}
		var pieces []string
		for i, k := range s.texts {
			if k.skip != len(k.made) || k.begun != (len(k.made) > 0) || k.cached < 0 {
				t.Fatalf("%q: text %d: %+v", text, i, k)
			}
			if !k.begun {
				continue
			}
			again.texts[i] = known{cached: k.cached, pending: k.made}
			pieces = append(pieces, strings.TrimSuffix(strings.TrimPrefix(string(again.line(nil, i, true)), stateComment), "\n"))
			again.sent(i)
		}
		line := strings.Join(pieces, ";")
		o, ok := parseState(line, int(texts), scored)
		if !ok || o.id != s.id || o.created != s.created || o.mark != s.mark || (o.seed == nil) != (s.seed == nil) {
			t.Fatalf("%q: %+v, written %q: %+v", text, s, line, o)
		}
		for i, k := range s.texts {
			if got := o.texts[i]; !sameChoices(got.made, k.made) || slices.ContainsFunc(got.tokens(), func(n int32) bool { return n < 0 }) || k.begun && got.cached != k.cached {
				t.Fatalf("%q, written %q: text %d: %+v, it was %+v", text, line, i, got, k)
			}
		}
	})
}

// sameChoices compares to the bit.
func sameChoices(a, b []sample.Choice) bool {
	return slices.EqualFunc(a, b, func(a, b sample.Choice) bool {
		return a.Token == b.Token && bytes.Equal(appendScores(nil, &a), appendScores(nil, &b))
	})
}

// TestStreamOfAnotherModel checks that a stream continues with the model that began it, and is refused by another.
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
	first.id, first.texts[0].pending = "cmpl-1", []sample.Choice{{Token: 7}, {Token: 8}}
	piece := strings.TrimSuffix(strings.TrimPrefix(string(first.line(nil, 0, true)), stateComment), "\n")
	if again, err := read(&Server{mark: "m1"}, piece); err != nil || !strings.HasPrefix(again.mark, "m1"+markPrompt) || len(again.texts[0].made) != 2 {
		t.Errorf("the same model: %v, %+v", err, again)
	}
	_, err = read(&Server{mark: "m2"}, piece)
	if e, is := errors.AsType[*Error](err); !is || e.Code != codeStreamCut || e.Status != http.StatusBadRequest {
		t.Errorf("another model: %v, want %s", err, codeStreamCut)
	}
}
