package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

type writer struct {
	w     http.ResponseWriter
	r     *http.Request // the client's
	to    shape
	state *stateWriter

	status int // 0: nothing was written
	stream *stream
	whole  bytes.Buffer
}

func (o *writer) Header() http.Header { return o.w.Header() }

// Unwrap is for [http.ResponseController]: deadlines are the connection's.
func (o *writer) Unwrap() http.ResponseWriter { return o.w }

// FlushError is for [http.ResponseController]. A whole answer has nothing to flush yet.
func (o *writer) FlushError() error {
	if o.stream == nil {
		return nil
	}
	return http.NewResponseController(o.w).Flush()
}

func (o *writer) WriteHeader(status int) {
	if status < http.StatusOK {
		o.w.WriteHeader(status)
		return
	}
	if o.status != 0 {
		return
	}
	o.status = status
	h := o.w.Header()
	if status != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") || o.to.events == nil {
		return
	}
	h.Del("Content-Length")
	if o.to.lines() {
		h.Set("Content-Type", "application/x-ndjson")
	}
	o.w.WriteHeader(status)
	o.stream = newStream(o.w, o.to, o.state)
}

func (o *writer) Write(p []byte) (int, error) {
	o.WriteHeader(http.StatusOK)
	if o.stream != nil {
		return o.stream.Write(p)
	}
	if o.whole.Len()+len(p) > maxAnswer {
		return 0, errTooLong()
	}
	return o.whole.Write(p)
}

var answerNames = map[string]string{pathVectors: "list of embeddings for the input", pathShow: "description of a model", pathText: "completion of a text"}

// finish writes a whole answer, after the handler has returned.
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
	if o.status >= http.StatusBadRequest && !o.countRefused() {
		o.writeFailure()
		return
	}
	var used relay.Usage
	if used.Read(o.whole.Bytes()); o.r.Header[control.HeaderUsage] != nil && used.Prompt > 0 { // not every API reports it
		h.Set(control.HeaderUsage, used.Told())
	}
	answer, is := o.to.answer(o.whole.Bytes())
	if !is {
		api.WriteErrorTo(o.w, o.r, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with something that is no %s", cmp.Or(answerNames[o.to.path], "chat completion")))
		return
	}
	raw, _ := json.Marshal(answer) // can't fail
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	o.write(raw)
}

func (o *writer) write(body []byte) {
	o.w.Header().Set("Content-Type", "application/json")
	o.w.WriteHeader(o.status)
	_, _ = o.w.Write(body)
}

// countRefused answers a request for a number of tokens by the refusal of a prompt that is too long, if that has it.
func (o *writer) countRefused() bool {
	f := parseFailure(o.whole.Bytes())
	if o.r.URL.Path != pathCount || f.Tokens == 0 || !strings.Contains(f.Message, fmt.Sprintf("has %d tokens", f.Tokens)) {
		return false
	}
	o.status = http.StatusOK
	o.whole.Reset()
	fmt.Fprintf(&o.whole, `{"choices":[{"message":{}}],"usage":{"prompt_tokens":%d}}`, f.Tokens)
	return true
}

func (o *writer) writeFailure() {
	body := o.renameFields(o.whole.Bytes())
	switch known := (struct{ Type string }{}); api.ShapeOf(o.r.URL.Path) {
	case api.ShapeMessages:
		if json.Unmarshal(body, &known) != nil || known.Type != "error" {
			f := parseFailure(body)
			f.Message = f.anthropic()
			body = f.error(o.status).Messages()
		}
	case api.ShapeOllama:
		body = parseFailure(body).error(o.status).Line()
	}
	o.write(append(bytes.TrimSpace(body), '\n'))
}

// renameFields replaces a chat completion's names in an error by the client's, in the text only if they are no common words.
func (o *writer) renameFields(body []byte) []byte {
	var b struct {
		Error map[string]any `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil || b.Error == nil {
		return body
	}
	param, _ := b.Error["param"].(string)
	text, _ := b.Error["message"].(string)
	renamed, known := text, o.to.names[param]
	for field, name := range o.to.names {
		if field == param || strings.Contains(field, "_") {
			renamed = strings.NewReplacer(field+" ", name+" ", field+".", name+".").Replace(renamed)
		}
	}
	if renamed == text && known == "" {
		return body
	}
	if known != "" {
		b.Error["param"] = known
	}
	if text != "" {
		b.Error["message"] = renamed
	}
	changed, _ := json.Marshal(b) // can't fail
	return changed
}

// failure is OpenAI's error, with numbers for a prompt that is too long.
type failure struct {
	Message string
	Code    json.RawMessage
	Tokens  int `json:"n_prompt_tokens"`
	Most    int `json:"max_tokens"`
	Context int `json:"n_ctx"`
}

func parseFailure(body []byte) failure {
	var b struct{ Error failure }
	if json.Unmarshal(body, &b) != nil {
		return failure{}
	}
	return b.Error
}

func (f failure) error(status int) *api.Error {
	e := &api.Error{Status: status, Message: cmp.Or(f.Message, "the runtime failed")}
	if f.Message != "" {
		_ = json.Unmarshal(f.Code, &e.Code) // a number is a status, not a code
	}
	return e
}

// anthropic returns Anthropic's message for a prompt that is too long: agents read the numbers to shorten answer or conversation.
func (f failure) anthropic() string {
	switch {
	case f.Context <= 0:
	case f.Tokens >= f.Context:
		return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", f.Tokens, f.Context-1) // one token is for the answer
	case f.Tokens+f.Most > f.Context:
		return fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again", f.Tokens, f.Most, f.Context)
	}
	return f.Message
}
