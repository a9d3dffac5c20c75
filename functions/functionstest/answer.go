package functionstest

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/internal/bell"
)

type answer struct {
	w      http.ResponseWriter
	r      *http.Request
	fault  fault
	style  string // the path of the request
	tokens int
}

func (a *answer) write(stream bool) bool {
	if stream {
		return a.stream()
	}
	words := make([]string, 0, a.tokens)
	for i := range a.tokens {
		if !a.token(i) {
			return false
		}
		words = append(words, fmt.Sprintf("t%d", i))
	}
	body := fmt.Appendf(nil, cmp.Or(bodies[a.style], bodies["/v1/completions"]), strings.Join(words, " "), a.tokens, a.tokens+1)
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if a.fault.cut >= 0 {
		_, _ = a.w.Write(body[:len(body)/2])
		a.abort()
	}
	_, _ = a.w.Write(body)
	return true
}

func (a *answer) abort() {
	_ = http.NewResponseController(a.w).Flush()
	panic(http.ErrAbortHandler)
}

// token returns false if the client has left.
func (a *answer) token(i int) bool {
	if a.fault.exitAfter == i {
		_ = http.NewResponseController(a.w).Flush()
		os.Exit(5)
	}
	if a.fault.stall == i {
		<-a.r.Context().Done()
		return false
	}
	_ = bell.Sleep(a.r.Context(), a.fault.pause)
	return a.r.Context().Err() == nil
}

func (a *answer) stream() bool {
	a.w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(a.w)
	for i := range a.tokens {
		if !a.token(i) {
			return false
		}
		switch i {
		case a.fault.cut:
			_, _ = fmt.Fprint(a.w, `data: {"choices":[{"index":0,"del`)
			a.abort()
		case a.fault.eof:
			return true
		}
		finish := "null"
		if i == a.tokens-1 {
			finish = `"length"`
		}
		_, _ = fmt.Fprintf(a.w, events[a.style], fmt.Sprintf("t%d ", i), finish)
		if err := flush.Flush(); err != nil {
			return false
		}
	}
	_, _ = fmt.Fprint(a.w, cmp.Or(ends[a.style], "data: [DONE]\n\n"))
	return true
}

// bodies are whole answers: for a text, its number of tokens, and all tokens.
var bodies = map[string]string{
	"/v1/completions":      `{"choices":[{"finish_reason":"length","index":0,"logprobs":null,"text":%q}],"created":1700000000,"id":"fake","model":"fake","object":"text_completion","usage":{"completion_tokens":%d,"prompt_tokens":1,"total_tokens":%d}}`,
	"/v1/chat/completions": `{"choices":[{"finish_reason":"length","index":0,"logprobs":null,"message":{"content":%q,"refusal":null,"role":"assistant"}}],"created":1700000000,"id":"fake","model":"fake","object":"chat.completion","usage":{"completion_tokens":%d,"prompt_tokens":1,"total_tokens":%d}}`,
}

// events are the events of streams, for a text and a reason to finish; ends are their last ones.
var events = map[string]string{
	"/v1/completions": `data: {"choices":[{"finish_reason":%[2]s,"index":0,"logprobs":null,"text":%[1]q}],"created":1700000000,"id":"fake","model":"fake","object":"text_completion"}

`,
	"/v1/chat/completions": `data: {"choices":[{"delta":{"content":%[1]q},"finish_reason":%[2]s,"index":0}],"created":1700000000,"id":"fake","model":"fake","object":"chat.completion.chunk"}

`,
	"/v1/responses": `event: response.output_text.delta
data: {"delta":%[1]q,"type":"response.output_text.delta"}

`,
	"/v1/messages": `event: content_block_delta
data: {"delta":{"text":%[1]q},"type":"content_block_delta"}

`,
}

var ends = map[string]string{
	"/v1/responses": "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n",
	"/v1/messages":  "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
}
