// Package relaytest tests proxies that forward streams with package relay. It compares what a client sees of a stream
// that ends well, ends too early or breaks, in pieces of several sizes.
package relaytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// Stream is an answer in pieces.
type Stream struct {
	Path, ContentType string
	Pieces            []string
	// Broken means that the connection breaks after the pieces; otherwise the stream ends properly.
	Broken bool
}

// Ends passes streams through a proxy and compares what the client sees. AnyEnd means that the proxy leaves the
// judgment of clean ends to the next reader.
type Ends struct {
	Through func(t *testing.T, s Stream) (seen string)
	AnyEnd  bool
}

const (
	word     = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
	lookLike = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"finish_reason\\\":\\\"stop\\\" data: [DONE]\"},\"finish_reason\":null}]}\n\n"
	finish   = "data: {\"choices\":[{\"delta\":{},\"finish_reason\": \"stop\"}]}\n\n"
	done     = "data: [DONE]\n\n"
	failed   = "data: {\"error\":{\"message\":\"m\"}}\n\n"
	line     = "{\"message\":{\"content\":\"a\"},\"done\":false}\n"
	lastLine = "{\"done\":true}\n"

	chat, responses, messages, speech, ollama = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/audio/speech", "/api/chat"
)

// end is one case: the text that comes, and the part of it that the client sees, before the error event if it is cut.
type end struct {
	name, path, text string
	broken           bool
	want             string
	cut              bool
}

func whole(name, path, text string, broken bool) end {
	return end{name, path, text, broken, text, false}
}

var ends = []end{
	whole("complete", chat, word+finish+done, false),
	whole("a finish reason is enough", chat, word+finish, false),
	whole("[DONE] is enough", chat, word+done, false),
	whole("CRLF", chat, "data: x\r\n\r\ndata: [DONE]\r\n\r\n", false),
	whole("no space after the colon", chat, "data:[DONE]\n\n", false),
	whole("the last blank line is missing", chat, word+"data: [DONE]", false),
	whole("the runtime's own error is an end", chat, word+failed, false),
	whole("broken after [DONE]", chat, word+done, true),
	whole("an event longer than buffers", chat, "data: "+strings.Repeat("x", 100<<10)+"\n\n"+done, false),
	{"a clean end that is none", chat, word + word, false, word + word, true},
	{"text that looks like an end", chat, lookLike, false, lookLike, true},
	{"a clean end within a line", chat, word + `data: {"cho`, false, word, true},
	{"broken between events", chat, word, true, word, true},
	{"broken within a line", chat, word + `data: {"cho`, true, word, true},
	{"broken within an event", chat, word + "event: x\ndata: {}\n", true, word + "event: x\ndata: {}\n\n", true},
	{"broken after a finish reason: the usage may be missing", chat, word + finish, true, word + finish, true},
	{"comments only", chat, ": keepalive\n\n", false, ": keepalive\n\n", true},
	whole("responses", responses, "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n", false),
	whole("responses without names", responses, "data: {\"type\": \"response.incomplete\"}\n\n", false),
	{"responses without an end", responses, "event: response.created\ndata: {}\n\n", false, "event: response.created\ndata: {}\n\n", true},
	whole("messages", messages, "event: message_stop\ndata: {}\n\n", false),
	{"messages without an end", messages, "event: ping\ndata: {}\n\n", false, "event: ping\ndata: {}\n\n", true},
	whole("a stream of another kind may end anywhere", speech, word, false),
	{"but not break", speech, word, true, word, true},
	whole("lines", ollama, line+line+lastLine, false),
	whole("lines, the last without an end", ollama, line+strings.TrimSpace(lastLine), false),
	whole("lines, broken after the last", ollama, line+lastLine, true),
	whole("lines, the runtime's own error", ollama, line+"{\"error\":\"m\"}\n", false),
	{"lines, a clean end that is none", ollama, line + line, false, line + line, true},
	{"lines, broken within one", ollama, line + "{\"do", true, line, true},
}

// Run runs the suite.
func (e Ends) Run(t *testing.T) {
	for _, c := range ends {
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

// isError reports whether text is one error event in the format for clients of path.
func isError(path, text string) bool {
	if path == ollama {
		return strings.HasPrefix(text, `{"error":"`) && strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n")
	}
	named := api.EventsOf(path) == api.StreamMessages || api.EventsOf(path) == api.StreamResponses
	data, found := strings.CutPrefix(text, "event: error\n")
	return found == named && strings.HasPrefix(data, "data: {") && strings.Contains(data, `"error"`) && strings.Contains(data, api.CodeStreamCut) &&
		strings.Count(data, "\n") == 2 && strings.HasSuffix(data, "\n\n")
}
