package translate_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/translate"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay"
)

// spoken are the chunks of an answer with thoughts, text and two calls; one chunk is empty.
var spoken = []string{
	`"delta":{"role":"assistant","content":""}`, `"delta":{"reasoning_content":"hm"}`, `"delta":{"reasoning_content":" so"}`, `"delta":{"content":"well"}`, `"delta":{"content":" now"}`,
	`"delta":{"tool_calls":[{"index":0,"id":"call_A","type":"function","function":{"name":"look","arguments":""}}]}`, `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`,
	`"delta":{"tool_calls":[{"index":1,"id":"call_B","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}}]}`, `"delta":{},"finish_reason":"tool_calls"`,
}

// speaker is a runtime that sends the state of its streams, repeats the chunks of a given state, and cuts its
// connection at a place; -1: nowhere.
type speaker struct {
	t      *testing.T
	cut    int  // after so many chunks
	scores bool // chunks have log probabilities, and the state is requested with them
}

func (s *speaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	state, scores := strings.CutPrefix(r.Header.Get(control.HeaderState), control.StateScores)
	if scores != (s.scores && state != "") {
		s.t.Errorf("the runtime is asked for the state %q, with scores: %v", state, scores)
	}
	if state != control.StateNew && state != "" {
		known, again := strings.CutPrefix(state, control.StateReplay)
		if pieces := strings.Split(known, ";"); !again || pieces[0] != "id:0" || len(pieces) > len(spoken)+1 {
			s.t.Errorf("the runtime is asked for the state %q", state)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(i int, data string) {
		if i == s.cut {
			panic(http.ErrAbortHandler)
		}
		if state != "" {
			piece := fmt.Sprint(i)
			switch i {
			case 0:
				piece = "id:0"
			case len(spoken):
				piece = "u"
			}
			_, _ = fmt.Fprintf(w, "%s%s\n", control.StateComment, piece)
		}
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"created\":7,\"model\":\"m\",%s}\n\n", data)
	}
	for i, c := range spoken {
		if s.scores {
			c += fmt.Sprintf(`,"logprobs":{"content":[{"token":"t","logprob":-%d.5,"bytes":[116],"top_logprobs":[]}]}`, i)
		}
		send(i, `"choices":[{"index":0,`+c+`}]`)
	}
	send(len(spoken), `"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}`)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// times matches the fields of answers that hold times.
var times = regexp.MustCompile(`"(created_at":"|completed_at":|[a-z_]+_duration":)[^",}]+`)

// TestTranslatedStreamsGoOn cuts translated streams at their bytes, has the rest translated from the state, and
// compares the client's bytes with an uncut stream.
func TestTranslatedStreamsGoOn(t *testing.T) {
	ask := func(t *testing.T, path, body, state string, cut int) string {
		t.Helper()
		path, _, _ = strings.Cut(path, " ")
		h := &translate.Handler{Next: &speaker{t, cut, strings.Contains(body, "logprobs")}, Door: inbound.New(inbound.Config{}), Client: func(*http.Request) string { return "" }, Names: []api.ModelName{"m"}}
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		if state != "" {
			r.Header.Set(control.HeaderState, state)
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if broken := recover(); broken != nil && broken != http.ErrAbortHandler {
					panic(broken)
				}
			}()
			h.ServeHTTP(w, r)
		}()
		return times.ReplaceAllString(w.Body.String(), `"${1}0`)
	}
	for path, body := range map[string]string{
		"/v1/messages":              `{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"look","input_schema":{"type":"object"}}]}`,
		"/v1/responses":             `{"model":"m","stream":true,"input":"x","tools":[{"type":"function","name":"look","parameters":{"type":"object"}}]}`,
		"/v1/responses with scores": `{"model":"m","stream":true,"input":"x","include":["message.output_text.logprobs"],"tools":[{"type":"function","name":"look","parameters":{"type":"object"}}]}`,
		"/api/chat":                 `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
	} {
		t.Run(path, func(t *testing.T) {
			want := ask(t, path, body, "", -1)
			told := ask(t, path, body, control.StateNew, -1)
			var all relay.State
			if got := string(all.Take([]byte(told))); got != want {
				t.Fatalf("without its state the stream is\n%s\nwant\n%s", got, want)
			}
			for at := 1; at < len(told); at += 1 + len(told)/2000 { // for longer ones not every byte
				var s relay.State
				part := told[:at]
				got := string(s.Take([]byte(part[:strings.LastIndexByte(part, '\n')+1])))
				if !strings.HasSuffix(got, "\n\n") && strings.Contains(got, "data:") && !strings.HasPrefix(path, "/api") {
					got += "\n" // as the relay ends an event that is open
				}
				if len(got) >= len(want) {
					break // it is complete
				}
				if s.Header() == control.StateNew && got != "" {
					t.Fatalf("cut at %d: %q was sent, and nothing is known of it", at, got)
				}
				rest := ask(t, path, body, s.Header(), -1)
				if more := string((&relay.State{}).Take([]byte(rest))); got+more != want {
					t.Fatalf("cut behind %q with the state %s: the rest is\n%s", got[max(0, len(got)-200):], s.Header(), more)
				}
			}
			// Cut again and again, after each chunk.
			var s relay.State
			got := ""
			for cut := 1; cut <= len(spoken)+1; cut++ {
				got += string(s.Take([]byte(ask(t, path, body, s.Header(), cut))))
			}
			if got += string(s.Take([]byte(ask(t, path, body, s.Header(), -1)))); got != want {
				t.Fatalf("cut behind each chunk, it is\n%s\nwant\n%s", got, want)
			}
		})
	}
}
