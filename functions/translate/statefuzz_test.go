package translate

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
)

// FuzzStateWriter checks for any state that the rest of a stream has the events of the whole one, each once and in
// order, and that the request to the runtime is valid.
func FuzzStateWriter(f *testing.F) {
	for _, s := range []string{"new", "id:0", "id:0;1;+;+", "id:0;1;2;3;e;e", "+;+", "e", ";;;", "replay:id:0;1", "scores:new", strings.Repeat("+;", 999), strings.Repeat("e;", 999) + "1", "1;e;2;e;+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, state string) {
		all := func(told *stateWriter) string {
			out := &bytes.Buffer{}
			s := newStream(out, messageShape, told)
			for i, chunk := range strings.SplitAfter(chunks, "\n\n") {
				if told != nil && strings.HasPrefix(chunk, "data: {") {
					_, _ = s.Write([]byte(control.StateComment + strings.Repeat("1", i+1) + "\n"))
				}
				_, _ = s.Write([]byte(chunk))
			}
			s.close()
			return out.String()
		}
		h := http.Header{control.HeaderState: {state}}
		told := newStateWriter(h, nil, messageShape)
		if (told == nil) != (state == "") {
			t.Fatalf("%q: %v", state, told)
		}
		if asked := h.Get(control.HeaderState); told != nil && asked != control.StateNew && !strings.HasPrefix(asked, control.StateReplay) {
			t.Fatalf("%q: the runtime is asked for %q", state, asked)
		}
		whole := strings.SplitAfter(all(nil), "\n\n")
		for event := range strings.SplitAfterSeq(all(told), "\n\n") {
			if line, rest, found := strings.Cut(event, "\n"); found && strings.HasPrefix(line, control.StateComment) {
				event = rest
			}
			for len(whole) > 0 && whole[0] != event {
				whole = whole[1:]
			}
			if len(whole) == 0 {
				t.Fatalf("%q: the event %q is not one of the whole stream, behind those before it", state, event)
			}
			if event != "" {
				whole = whole[1:]
			}
		}
	})
}
