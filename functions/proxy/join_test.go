package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// streams asks for streams if clients want none.
type streams struct{ dialect }

func (streams) Request(string, *jsonfield.Object) *api.Error { return nil }

func (streams) Stream(_ string, body *jsonfield.Object) bool {
	asked, _ := body.Find("stream")
	body.Set("stream", []byte("true"))
	return string(asked) != "true"
}

const (
	head = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":"fp","choices":[`
	done = "data: [DONE]\n\n"
)

func delta(text string) string {
	return "data: " + head + `{"index":0,"delta":` + text + `,"finish_reason":null}]}` + "\n\n"
}

// TestJoined: a client that wants no stream gets the joined stream, in the form of the runtime's own answer, and the time of the first
// token is known.
func TestJoined(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}`
	end := "data: " + head + `{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}` + "\n\n" +
		"data: " + head + `],` + usage + "}\n\n" + done
	whole := func(message, finish, more string) string {
		return strings.Replace(head, ".chunk", "", 1) + `{"index":0,"message":` + message + `,"finish_reason":"` + finish + `"` + more + `}],` + usage + "}\n"
	}
	for name, tc := range map[string]struct {
		path, stream string
		status       int
		want         string
		first        bool
	}{
		"a chat": {
			stream: delta(`{"role":"assistant","content":"a <b"}`) + delta(`{"role":"assistant","content":"> \"c\""}`) + end,
			status: 200, want: whole(`{"role":"assistant","content":"a \u003cb\u003e \"c\""}`, "stop", ""), first: true,
		},
		"reasoning": {
			stream: delta(`{"role":"assistant","content":"","reasoning":"th"}`) + delta(`{"role":"assistant","content":"","reasoning":"ink"}`) + delta(`{"role":"assistant","content":"x"}`) + end,
			status: 200, want: whole(`{"role":"assistant","content":"x","reasoning":"think"}`, "stop", ""), first: true,
		},
		"tools": {
			stream: delta(`{"role":"assistant","content":"","tool_calls":[{"id":"1","index":0,"type":"function","function":{"name":"f","arguments":"{}"}}]}`) +
				delta(`{"role":"assistant","content":"","tool_calls":[{"id":"2","index":1,"type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]}`) +
				strings.Replace(end, `"stop"`, `"tool_calls"`, 1),
			status: 200, want: whole(`{"role":"assistant","content":"","tool_calls":[{"id":"1","index":0,"type":"function","function":{"name":"f","arguments":"{}"}},`+
				`{"id":"2","index":1,"type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]}`, "tool_calls", ""), first: true,
		},
		"probabilities": {
			stream: "data: " + head + `{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null,"logprobs":{"content":[{"token":"x","logprob":-1}]}}]}` + "\n\n" +
				"data: " + head + `{"index":0,"delta":{"role":"assistant","content":"y"},"finish_reason":null,"logprobs":{"content":[{"token":"y","logprob":-2}]}}]}` + "\n\n" + end,
			status: 200, want: whole(`{"role":"assistant","content":"xy"}`, "stop", `,"logprobs":{"content":[{"token":"x","logprob":-1},{"token":"y","logprob":-2}]}`), first: true,
		},
		"a completion": {
			path: "/v1/completions",
			stream: `data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[{"text":"a","index":0,"finish_reason":null}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}` + "\n\n" +
				`data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[{"text":"b","index":0,"finish_reason":"length"}]}` + "\n\n" +
				`data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[],` + usage + "}\n\n" + done,
			status: 200, first: true,
			want: `{"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":[{"text":"ab","index":0,"finish_reason":"length"}],` + usage + "}\n",
		},
		"a choice that is null": {
			stream: "data: " + head + "null]}\n\n" + delta(`{"role":"assistant","content":"x"}`) + end,
			status: 200, want: whole(`{"role":"assistant","content":"x"}`, "stop", ""), first: true,
		},
		"an error": {
			stream: delta(`{"role":"assistant","content":"a"}`) + `data: {"error":{"message":"out of memory","type":"api_error"}}` + "\n\n",
			status: 500, want: "error", first: true,
		},
		"cut":       {stream: delta(`{"role":"assistant","content":"a"}`), status: 502, want: "runtime_failed", first: true},
		"no JSON":   {stream: "data: {\n\n" + done, status: 502, want: "runtime_failed"},
		"no events": {stream: "", status: 502, want: "runtime_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tc.path
			if path == "" {
				path = "/v1/chat/completions"
			}
			b := set(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), `"stream":true`) {
					t.Errorf("the runtime was asked %s", body)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, tc.stream)
			}, func(c *proxy.Config) { c.Dialect = streams{} })
			resp, got, err := b.post(t, path, `{"model":"m"}`)
			if err != nil || resp.StatusCode != tc.status || resp.Header.Get("Content-Type") != "application/json" || resp.ContentLength != int64(len(got)) {
				t.Errorf("got %v, %v with %v: %s", resp, err, resp.Header, got)
			}
			if tc.status == 200 && got != tc.want || !strings.Contains(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			o := b.wantIdle(t)
			if o.Status != tc.status || (o.FirstToken > 0) != tc.first || tc.status == 200 && (o.PromptTokens != 5 || o.GeneratedTokens != 3 || o.LastToken < o.FirstToken) {
				t.Errorf("the outcome is %+v", o)
			}
		})
	}
}

// TestNotJoined: a refusal of the runtime is passed on, and so is a stream that the client asked for.
func TestNotJoined(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, body string
		status     int
	}{
		`{"model":"m"}`:               {"application/json", `{"error":{"message":"no tools","type":"api_error"}}`, 400},
		`{"model":"m","stream":true}`: {"text/event-stream", delta(`{"role":"assistant","content":"a"}`) + done, 200},
		`{"model":"m","n":1}`:         {"application/json", `{"object":"chat.completion"}`, 200},
	} {
		b := set(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tc.kind)
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.body)
		}, func(c *proxy.Config) { c.Dialect = streams{} })
		resp, got, err := b.post(t, "/v1/chat/completions", name)
		if err != nil || resp.StatusCode != tc.status || !strings.HasPrefix(resp.Header.Get("Content-Type"), tc.kind) || tc.status == 200 && got != tc.body {
			t.Errorf("%s: got %v %v %s", name, resp.Status, err, got)
		}
	}
}
