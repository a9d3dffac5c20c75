package resume

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// events is the body of a vLLM stream: each event without the IDs of its tokens, and with its piece of the state in front. It belongs to
// the goroutine that reads it.
type events struct {
	body io.ReadCloser
	from *bufio.Reader
	chat bool
	out  []byte // for the reader
	err  error  // after out

	stream stream
	fresh  bool   // no chunk has come
	why    string // why the state is not reported
	opened bool   // the first piece was sent

	resumed bool
	made    int             // tokens of the answer from earlier instances
	dropped int             // tokens that are generated again, and not reported yet
	details json.RawMessage // of the prompt, for the usage
}

func newEvents(body io.ReadCloser, chat bool) *events {
	return &events{body: body, from: bufio.NewReaderSize(body, 4<<10), chat: chat, fresh: true}
}

// maxEvent bounds one event: the first one has the IDs of the whole prompt.
const maxEvent = 16 << 20

func (e *events) Close() error { return e.body.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.out) == 0 && e.err == nil {
		e.next()
	}
	if len(e.out) == 0 {
		return 0, e.err
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

func (e *events) peek() {
	for len(e.out) == 0 && e.err == nil {
		e.next()
	}
}

func (e *events) next() {
	event, err := e.event()
	if err != nil {
		e.err = err // a partial event is worth nothing
		return
	}
	data, found := []byte(nil), false
	for line := range bytes.Lines(event) {
		if rest, is := bytes.CutPrefix(line, []byte("data:")); is && !found {
			data, found = bytes.TrimSpace(rest), true
		}
	}
	if !found || len(data) == 0 || data[0] != '{' {
		e.out = event
		return
	}
	changed, piece, err := e.chunk(data)
	if err != nil {
		e.err = err
		return
	}
	if piece == "" {
		e.out = append(append([]byte("data: "), changed...), "\n\n"...)
		return
	}
	out := append(make([]byte, 0, len(changed)+len(piece)+40), control.StateComment...)
	if !e.opened && !e.resumed {
		out = append(out, e.stream.head()...)
	}
	e.opened = true
	e.out = append(append(append(append(out, piece...), "\ndata: "...), changed...), "\n\n"...)
}

func (e *events) event() (event []byte, err error) {
	for {
		line, err := e.from.ReadSlice('\n')
		event = append(event, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(event) < maxEvent:
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(line, "\r\n")) == 0 && (len(line) == len(event) || bytes.HasSuffix(event[:len(event)-len(line)], []byte("\n"))):
			return event, nil
		}
	}
}

type choice struct {
	raw     []byte
	tokens  []int64
	text    []byte // quoted; nil: none
	finish  []byte // null: it continues
	stopped []byte
	strange bool // it has fields that plain text lacks
}

// chunk returns an event's data for the client, and the piece of the state; empty: none.
func (e *events) chunk(data []byte) (changed []byte, told string, err error) {
	if what, failed := jsonfield.Find(data, "error"); failed && string(what) != "null" {
		if serious(what) && !e.fresh && e.why == "" {
			return nil, "", fmt.Errorf("vLLM ends the stream with an error, %.300q: %w", what, io.ErrUnexpectedEOF)
		}
		return data, "", nil
	}
	list, found := jsonfield.Find(data, "choices")
	if !found {
		return data, "", nil
	}
	var c *choice
	_ = jsonfield.Items(list, func(item []byte) bool {
		c = readChoice(item, e.chat && !e.resumed)
		return false
	})
	if e.fresh {
		e.fresh = false
		e.open(data, c)
	}
	switch {
	case c == nil && e.why == "":
		return e.count(data), "u", nil
	case c == nil:
		return data, "", nil
	case e.why != "":
		return without(data, c.raw), "", nil
	}
	if string(c.finish) == `"abort"` {
		return nil, "", fmt.Errorf("vLLM has aborted the request: %w", io.ErrUnexpectedEOF)
	}
	e.stream.lost = e.stream.lost || c.strange
	told = piece(c.tokens, e.dropped, string(c.finish) != "null")
	e.dropped = 0
	if e.stream.lost {
		told = "x"
	}
	if e.resumed {
		return e.again(data, c), told, nil
	}
	return without(data, c.raw), told, nil
}

func (e *events) open(data []byte, c *choice) {
	ids, found := jsonfield.Find(data, "prompt_token_ids")
	if !found && c != nil {
		ids, found = jsonfield.Find(c.raw, "prompt_token_ids")
	}
	var tokens []int64
	if !found || json.Unmarshal(ids, &tokens) != nil || len(tokens) == 0 {
		e.why = notTold
		return
	}
	var own struct {
		ID      string `json:"id"`
		Created int64  `json:"created"`
		Model   string `json:"model"`
	}
	_ = json.Unmarshal(data, &own) // an object; a field of another type is empty
	e.stream.id, e.stream.created, e.stream.model = own.ID, own.Created, own.Model
	if len(own.ID) > maxName || len(own.Model) > maxName {
		e.why = "its id is too long"
		return
	}
	e.stream.prompt, e.stream.digest = len(tokens), digest(tokens)
}

func readChoice(item []byte, chat bool) *choice {
	c := &choice{raw: item, finish: []byte("null"), stopped: []byte("null")}
	if ids, found := jsonfield.Find(item, "token_ids"); found {
		c.strange = json.Unmarshal(ids, &c.tokens) != nil
	}
	if value, found := jsonfield.Find(item, "finish_reason"); found {
		c.finish = value
	}
	if value, found := jsonfield.Find(item, "stop_reason"); found {
		c.stopped = value
	}
	if !chat {
		c.text, _ = jsonfield.Find(item, "text")
	} else if delta, found := jsonfield.Find(item, "delta"); found {
		_ = jsonfield.Each(delta, func(name, value []byte) bool {
			switch string(name) {
			case `"content"`:
				c.text = value
			case `"role"`:
			default:
				c.strange = c.strange || !empty(value)
			}
			return true
		})
	}
	if text := len(c.text) > 0 && c.text[0] == '"'; len(c.tokens) > 0 && !text || len(c.tokens) == 0 && text && len(c.text) > 2 && string(c.finish) == "null" {
		c.strange = true // a parser has removed the tokens' text, or adds some
	}
	return c
}

func empty(value []byte) bool {
	switch string(value) {
	case "null", "[]", `""`:
		return true
	}
	return false
}

// serious reports whether an error is the server's, and not the request's.
func serious(what []byte) bool {
	var e struct {
		Code json.RawMessage `json:"code"`
	}
	if json.Unmarshal(what, &e) != nil {
		return true
	}
	code, err := strconv.Atoi(string(e.Code))
	return err != nil || code >= http.StatusInternalServerError
}

// without returns a chunk without the IDs: vLLM has the fields in any chunk, with null for none.
func without(data, item []byte) []byte {
	for _, name := range []string{"token_ids", "prompt_token_ids"} {
		if _, found := jsonfield.Find(item, name); found {
			item = jsonfield.Set(item, name, []byte("null"))
		}
	}
	if _, found := jsonfield.Find(data, "prompt_token_ids"); found {
		data = jsonfield.Set(data, "prompt_token_ids", []byte("null"))
	}
	return jsonfield.Set(data, "choices", append(append([]byte{'['}, item...), ']'))
}

func (e *events) again(data []byte, c *choice) []byte {
	if e.chat {
		usage, _ := jsonfield.Find(e.count(data), "usage")
		return e.stream.chunk(true, c.text, c.finish, c.stopped, usage)
	}
	return e.count(without(data, c.raw))
}

// count sets the chunk's usage to the whole answer's, and its ID to the stream's.
func (e *events) count(data []byte) []byte {
	if !e.resumed {
		return data
	}
	id, _ := json.Marshal(e.stream.id)
	data = jsonfield.Set(data, "id", id)
	data = jsonfield.Set(data, "created", strconv.AppendInt(nil, e.stream.created, 10))
	if e.chat {
		data = jsonfield.Set(data, "object", []byte(`"chat.completion.chunk"`))
	}
	usage, found := jsonfield.Find(data, "usage")
	var now struct {
		Completion int `json:"completion_tokens"`
	}
	if !found || string(usage) == "null" || json.Unmarshal(usage, &now) != nil {
		return data
	}
	made := e.made + now.Completion
	for name, n := range map[string]int{"prompt_tokens": e.stream.prompt, "completion_tokens": made, "total_tokens": e.stream.prompt + made} {
		usage = jsonfield.Set(usage, name, strconv.AppendInt(nil, int64(n), 10))
	}
	if _, found := jsonfield.Find(usage, "prompt_tokens_details"); found && len(e.details) > 0 {
		usage = jsonfield.Set(usage, "prompt_tokens_details", e.details)
	}
	return jsonfield.Set(data, "usage", usage)
}

// chunk returns a chunk in vLLM's format. text, finish, stopped and usage are JSON; an empty usage is left out.
func (s *stream) chunk(chat bool, text, finish, stopped, usage []byte) []byte {
	if len(text) == 0 {
		text = []byte(`""`)
	}
	var c []byte
	if chat {
		c = fmt.Appendf(c, `[{"index":0,"delta":{"content":%s},"logprobs":null,"finish_reason":%s,`, text, finish)
	} else {
		c = fmt.Appendf(c, `[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s,`, text, finish)
	}
	if !chat || string(finish) != "null" {
		c = fmt.Appendf(c, `"stop_reason":%s,`, stopped)
	}
	return s.envelope(chat, append(c, `"token_ids":null}]`...), usage)
}

func (s *stream) envelope(chat bool, choices, usage []byte) []byte {
	object := "text_completion"
	if chat {
		object = "chat.completion.chunk"
	}
	id, _ := json.Marshal(s.id)
	model, _ := json.Marshal(s.model)
	out := fmt.Appendf(nil, `{"id":%s,"object":%q,"created":%d,"model":%s,"choices":%s`, id, object, s.created, model, choices)
	if len(usage) > 0 && string(usage) != "null" {
		out = append(append(out, `,"usage":`...), usage...)
	}
	return append(out, '}')
}
