package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// shape is what the runtime is asked for, and the API that its answer is translated into.
type shape struct {
	of target
	// answer makes an answer of a whole body; false: it is not what was asked for.
	answer func(body []byte) (any, bool)
	// names are the client's for fields that the runtime knows by others: an error names the client's.
	names map[string]string
	// events begins a stream; nil: the answer is never one.
	events func(*bytes.Buffer) events
	// ping is what the stream has for a comment that keeps the connection open; nil: the comment.
	ping []byte
	// scored says that the end of a stream has the scores of all its tokens, where they are asked for.
	scored bool
	// lines says that the stream is one of lines of JSON, without comments.
	lines bool
}

// whole makes answers of whole completions.
func whole(answer func(*completion) any) func(body []byte) (any, bool) {
	return func(body []byte) (any, bool) {
		var c completion
		if err := json.Unmarshal(body, &c); err != nil || len(c.Choices) == 0 {
			return nil, false
		}
		return answer(&c), true
	}
}

// writer translates an answer on its way to the client.
type writer struct {
	w  http.ResponseWriter
	r  *http.Request // the client's
	to shape

	told   *teller
	status int // 0: nothing was written
	stream *stream
	whole  bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (o *writer) Header() http.Header { return o.w.Header() }

// Unwrap is for [http.ResponseController]: deadlines are the connection's.
func (o *writer) Unwrap() http.ResponseWriter { return o.w }

// FlushError is for [http.ResponseController]. An answer that is translated as a whole has nothing to flush yet.
func (o *writer) FlushError() error {
	if o.stream == nil {
		return nil
	}
	return http.NewResponseController(o.w).Flush() // the caller's own
}

// WriteHeader implements [http.ResponseWriter].
func (o *writer) WriteHeader(status int) {
	switch {
	case status < http.StatusOK:
		o.w.WriteHeader(status)
		return
	case o.status != 0:
		return
	}
	o.status = status
	if h := o.w.Header(); status == http.StatusOK && strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") && o.to.events != nil {
		h.Del("Content-Length")
		if o.to.lines {
			h.Set("Content-Type", "application/x-ndjson")
		}
		o.w.WriteHeader(status)
		o.stream = newStream(o.w, o.to.events)
		o.stream.silent, o.stream.ping, o.stream.told = o.to.lines, o.to.ping, o.told
	}
}

// Write implements [http.ResponseWriter].
func (o *writer) Write(p []byte) (int, error) {
	if o.status == 0 {
		o.WriteHeader(http.StatusOK)
	}
	if o.stream != nil {
		return o.stream.Write(p)
	}
	if o.whole.Len()+len(p) > maxAnswer {
		return 0, tooLong()
	}
	return o.whole.Write(p)
}

// finish writes what is translated as a whole. The answer has ended as it should.
func (o *writer) finish() {
	switch {
	case o.status == 0:
		return
	case o.stream != nil:
		o.stream.close()
		return
	}
	h := o.w.Header()
	h.Del("Content-Length")
	if o.status >= http.StatusBadRequest && !o.counted() {
		o.failure()
		return
	}
	var used relay.Usage
	if used.Read(o.whole.Bytes()); o.r.Header[control.HeaderUsage] != nil && used.Prompt > 0 { // not every API tells it
		h.Set(control.HeaderUsage, used.Told())
	}
	answer, is := o.to.answer(o.whole.Bytes())
	if !is {
		api.WriteErrorTo(o.w, o.r, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with something that is no %s", o.to.of.names()))
		return
	}
	raw, _ := json.Marshal(answer) // of our own types and of JSON that was read
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	o.w.WriteHeader(o.status)
	_, _ = o.w.Write(raw) // a client that left needs no answer
}

// counted makes the refusal of a prompt that is too long the answer to who asked for its number of tokens only, where it says
// the number and not just a bound of it.
func (o *writer) counted() bool {
	e := lengthOf(o.whole.Bytes())
	if o.r.URL.Path != countPath || e.Tokens == 0 || !strings.Contains(e.Message, fmt.Sprintf("has %d tokens", e.Tokens)) {
		return false
	}
	o.status = http.StatusOK
	o.whole.Reset()
	fmt.Fprintf(&o.whole, `{"choices":[{"message":{}}],"usage":{"prompt_tokens":%d}}`, e.Tokens)
	return true
}

// failure writes a failure in the shape of the client's API, with its names of fields.
func (o *writer) failure() {
	body := o.rename(o.whole.Bytes())
	switch known := (struct{ Type string }{}); api.ShapeOf(o.r.URL.Path) {
	case api.ShapeMessages:
		if json.Unmarshal(body, &known) != nil || known.Type != "error" {
			e := fault(o.status, body)
			e.Message = anthropicLength(body, e.Message)
			body = e.Messages()
		}
	case api.ShapeOllama:
		body = fault(o.status, body).Line()
	}
	o.w.Header().Set("Content-Type", "application/json")
	o.w.WriteHeader(o.status)
	_, _ = o.w.Write(append(bytes.TrimSpace(body), '\n'))
}

// rename gives the fields that an error in OpenAI's shape names the client's names: the one at fault, and those that can't be anything else.
func (o *writer) rename(body []byte) []byte {
	var b struct {
		Error map[string]any `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil || b.Error == nil {
		return body
	}
	param, _ := b.Error["param"].(string)
	text, _ := b.Error["message"].(string)
	renamed, known := text, false
	for field, name := range o.to.names {
		if field == param {
			b.Error["param"], known = name, true
		}
		if field == param || strings.Contains(field, "_") {
			renamed = strings.NewReplacer(field+" ", name+" ", field+".", name+".").Replace(renamed)
		}
	}
	if renamed == text && !known {
		return body
	}
	if text != "" {
		b.Error["message"] = renamed
	}
	changed, _ := json.Marshal(b) // of JSON that was read
	return changed
}

// fault is what a body in OpenAI's shape says.
func fault(status int, body []byte) *api.Error {
	var b struct {
		Error struct {
			Message string
			Param   *string
			Code    json.RawMessage
		}
	}
	e := &api.Error{Status: status}
	if err := json.Unmarshal(body, &b); err != nil || b.Error.Message == "" {
		e.Message = "the runtime failed"
		return e
	}
	e.Message = b.Error.Message
	_ = json.Unmarshal(b.Error.Code, &e.Code) // a number is a status, and no code
	return e
}

// tooMany has the numbers in the refusal of a prompt that is too long.
type tooMany struct {
	Message string
	Tokens  int `json:"n_prompt_tokens"`
	Most    int `json:"max_tokens"`
	Context int `json:"n_ctx"`
}

func lengthOf(body []byte) tooMany {
	var b struct{ Error tooMany }
	if json.Unmarshal(body, &b) != nil {
		return tooMany{}
	}
	return b.Error
}

// anthropicLength is what Anthropic's API says of a prompt that is too long, where a body in OpenAI's shape has its numbers;
// else message. Agents read them there: they ask for a shorter answer, or make their conversation shorter, and go on.
func anthropicLength(body []byte, message string) string {
	switch e := lengthOf(body); {
	case e.Context <= 0:
		return message
	case e.Tokens >= e.Context:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.Tokens, e.Context-1) // one is the answer's
	case e.Tokens+e.Most > e.Context:
		return fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again", e.Tokens, e.Most, e.Context)
	}
	return message
}
