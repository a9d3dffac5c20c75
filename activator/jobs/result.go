package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

type resultLine struct {
	ID       string      `json:"id"`
	CustomID string      `json:"custom_id"`
	Response *response   `json:"response"`
	Error    *lineFailed `json:"error"`
}

type response struct {
	Status  int             `json:"status_code"`
	Request string          `json:"request_id"`
	Body    json.RawMessage `json:"body"`
}

type lineFailed struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *run) requestID(n int) string {
	return fmt.Sprintf("batch_req_%s_%d", strings.TrimPrefix(r.id, "batch_"), n+1)
}

func (o *outcome) result(r *run) store.Result {
	id := r.requestID(o.line)
	if o.answer.status == 0 {
		return o.failure(r, "stream_cut", "the answer was cut")
	}
	res := store.Result{Line: o.line, OK: o.answer.status/100 == 2}
	if res.OK {
		res.Tokens = tokensOf(o.answer.body)
	}
	if r.messages {
		res.Text = messageText(o.id, res.OK, o.answer.body)
		return res
	}
	res.Text = text(resultLine{ID: id, CustomID: o.id, Response: &response{Status: o.answer.status, Request: id, Body: raw(o.answer.body)}})
	return res
}

func (o *outcome) failure(r *run, code, message string) store.Result {
	if r.messages {
		return store.Result{Line: o.line, Text: messageFailure(o.id, code, message)}
	}
	return store.Result{Line: o.line, Text: text(resultLine{ID: r.requestID(o.line), CustomID: o.id, Error: &lineFailed{Code: code, Message: message}})}
}

// raw returns a body as compact JSON, or as a string if it is no JSON. It replaces invalid UTF-8, which many clients
// can't read.
func raw(body []byte) json.RawMessage {
	body = bytes.ToValidUTF8(body, []byte("\ufffd"))
	var one bytes.Buffer
	if json.Compact(&one, body) == nil && one.Len() > 0 {
		return one.Bytes()
	}
	quoted, _ := json.Marshal(string(body))
	return quoted
}

// lineEnds escapes what Python's str.splitlines and others take for the end of a line.
var lineEnds = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

func text(l any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(l) // its fields are valid JSON
	return []byte(lineEnds.Replace(b.String()))
}
