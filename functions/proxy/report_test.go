package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// reporting is a dialect of a server that is asked for usage with each chunk and at the end.
type reporting struct{}

func (reporting) Request(string, *jsonfield.Object) *api.Error { return nil }

func (reporting) Failure(_ string, _ int, body []byte) []byte { return body }

func (reporting) Report(string, *jsonfield.Object) relay.Asked {
	return relay.Asked{Chunk: true, Field: "usage", Moves: "system_fingerprint"}
}

// TestReportsAreRemoved checks that a client does not get the usage that only the proxy has asked for, whatever ends the lines of
// events, and wherever the stream is cut into parts.
func TestReportsAreRemoved(t *testing.T) {
	lines := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' })
	}
	const usage = `,"usage":{"prompt_tokens":3,"completion_tokens":2}`
	for name, end := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r"} {
		stream := func(usage, fingerprint, last string) string {
			events := []string{
				`data: {"choices":[{"index":0,"delta":{"content":"a"}}]` + usage + `}`, `: a comment`,
				`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]` + usage + fingerprint + `}`, last + `data: [DONE]`,
			}
			return strings.Join(events, end+end) + end + end
		}
		sent := stream(usage, "", `data: {"choices":[],"system_fingerprint":"f"`+usage+`}`+end+end)
		for _, size := range []int{1, 7, len(sent)} {
			b := set(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for rest := sent; rest != ""; rest = rest[min(size, len(rest)):] {
					_, _ = io.WriteString(w, rest[:min(size, len(rest))])
					_ = http.NewResponseController(w).Flush()
				}
			}, func(c *proxy.Config) { c.Dialect = reporting{} })
			_, got, err := b.post(t, "/v1/chat/completions", `{"stream":true}`)
			if diff := cmp.Diff(lines(stream("", `,"system_fingerprint":"f"`, "")), lines(got)); diff != "" || err != nil {
				t.Errorf("%s, parts of %d: %v, the client gets something else (-want +got):\n%s", name, size, err, diff)
			}
			if o := b.wantIdle(t); o.PromptTokens != 3 || o.GeneratedTokens != 2 {
				t.Errorf("%s, parts of %d: %d and %d tokens are counted, want 3 and 2", name, size, o.PromptTokens, o.GeneratedTokens)
			}
		}
	}
}

// TestChunksLikeEarlierOnes checks that a chunk that differs from an earlier one only in its text and its report is handled as one that
// is read whole.
func TestChunksLikeEarlierOnes(t *testing.T) {
	null := func([]byte) bool { return true }
	for name, asked := range map[string]relay.Asked{
		"usage": {Chunk: true, Field: "usage", Moves: "system_fingerprint"}, "null": {Field: "usage", Null: null}, "timings": {Field: "timings"},
	} {
		const report = `{"prompt_tokens":3,"completion_tokens":%[2]d,"prompt_n":2,"cache_n":1,"predicted_n":%[2]d}`
		var chunks []string
		for i, shape := range []string{
			`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"` + asked.Field + `":` + report + `}`,
			`{"choices":[{"index":1,"delta":{"content":"%s"},"finish_reason":null}],"` + asked.Field + `":` + report + `}`,
			`{"choices":[{"index":1,"delta":{"content":"%s"},"finish_reason":"stop"}],"` + asked.Field + `":` + report + `}`,
			`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null,"x":{"` + asked.Field + `":` + report + `}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"` + asked.Field + `":` + report + `,"after":1}`,
			`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":6},"` + asked.Field + `":` + report + `}`,
			`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"` + asked.Field + `":` + report + `,"after":{"b":1}}`,
			`{"content":"%s","stop":true,"` + asked.Field + `":` + report + `}`,
			`{"choices":[],"text":"%s","` + asked.Field + `":` + report + `}`,
			`{"choices":[{"index":0,"delta":{"content":"%s"}}]}%.0[2]d`,
		} {
			for _, text := range []string{"", "a", "b", `\\`, `\",\"` + asked.Field + `\":{}`, `a"},"index":1,"x":{"y":"b`} {
				chunks = append(chunks, fmt.Sprintf("data: "+shape+"\n\n", text, 10+i))
			}
		}
		for i := range len(chunks) * len(chunks) {
			pair := []string{chunks[i%len(chunks)], chunks[i/len(chunks)], `data: {"choices":[],"system_fingerprint":"f","usage":{"prompt_tokens":3,"completion_tokens":9}}` + "\n\n"}
			got, told := proxy.TakeAll(asked, pair, false)
			if want, said := proxy.TakeAll(asked, pair, true); got != want || told != said {
				t.Fatalf("%s: %q becomes %q with %s, want %q with %s", name, pair, got, told, want, said)
			}
		}
	}
}
