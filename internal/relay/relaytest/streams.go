// Package relaytest tests proxies that forward streams with package relay.
package relaytest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// Stream is an answer in pieces.
type Stream struct {
	Path, ContentType string
	Pieces            []string
	// Broken means that the connection breaks after the pieces.
	Broken bool
}

// Ends passes streams through a proxy and compares what the client sees. AnyEnd leaves the judgment of clean ends to the
// next reader.
type Ends struct {
	Through func(t *testing.T, s Stream) (seen string)
	AnyEnd  bool
}

const ollama = "/api/chat"

// end has the text that comes, and what the client sees of it, before the error event if it is cut.
type end struct {
	name, path, text, want string
	broken, cut            bool
}

//go:embed testdata/ends.txt
var file string

// readEnds reads the cases. A name in braces stands for the text that the file defines for it.
func readEnds() (ends []end) {
	names := []string{`\n`, "\n", `\r`, "\r", "{long}", strings.Repeat("x", 100<<10)}
	for line := range strings.Lines(file) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if len(f) == 2 {
			names = append(names, f[0], strings.NewReplacer(names...).Replace(f[1]))
		}
		if len(f) < 4 {
			continue
		}
		text := strings.NewReplacer(names...)
		e := end{name: f[0], path: f[1], broken: strings.HasPrefix(f[2], "broken"), cut: strings.HasSuffix(f[2], "cut"), text: text.Replace(f[3])}
		e.want = text.Replace(f[len(f)-1])
		ends = append(ends, e)
	}
	return ends
}

// Run runs the suite.
func (e Ends) Run(t *testing.T) {
	for _, c := range readEnds() {
		if e.AnyEnd && c.cut && !c.broken {
			continue
		}
		for _, size := range []int{1, 3, 7, 1000} {
			if len(c.text)/size > 10_000 {
				continue // single bytes would only take long
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, size), func(t *testing.T) {
				s := Stream{Path: c.path, ContentType: "text/event-stream; charset=utf-8", Broken: c.broken}
				if c.path == ollama {
					s.ContentType = "application/x-ndjson"
				}
				for rest := c.text; rest != ""; rest = rest[min(size, len(rest)):] {
					s.Pieces = append(s.Pieces, rest[:min(size, len(rest))])
				}
				c.compare(t, e.Through(t, s))
			})
		}
	}
}

func (c end) compare(t *testing.T, seen string) {
	t.Helper()
	rest, found := strings.CutPrefix(seen, c.want)
	switch {
	case !found || !c.cut && rest != "":
		t.Errorf("the client saw %q, want %q", seen, c.want)
	case c.cut && !isError(c.path, rest):
		t.Errorf("behind %q the client saw %q, want one error event", c.want, rest)
	}
}

func isError(path, text string) bool {
	if path == ollama {
		return strings.HasPrefix(text, `{"error":"`) && strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n")
	}
	named := api.EventsOf(path) == api.StreamMessages || api.EventsOf(path) == api.StreamResponses
	data, found := strings.CutPrefix(text, "event: error\n")
	return found == named && strings.HasPrefix(data, "data: {") && strings.Contains(data, `"error"`) && strings.Contains(data, api.CodeStreamCut) &&
		strings.Count(data, "\n") == 2 && strings.HasSuffix(data, "\n\n")
}
