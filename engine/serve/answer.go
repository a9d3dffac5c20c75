package serve

import (
	"crypto/rand"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/sample"
)

// answer writes one request's events in an endpoint's format, for one goroutine. Each choice's events come in order.
type answer interface {
	// chunk appends an event's choice for a stream, or nothing.
	chunk(dst []byte, ev *engine.Event, first bool) []byte
	collect(ev *engine.Event, first bool)
	choice(dst []byte, index int) []byte
	// extra appends members of the whole answer, each after a comma.
	extra(dst []byte) []byte
	object() (whole, chunk string)
}

type envelope struct {
	id, model string
	created   int64
	answer    answer
	choices   int
}

func newEnvelope(prefix, model string, choices int, a answer) *envelope {
	return &envelope{id: prefix + rand.Text(), model: model, created: time.Now().Unix(), answer: a, choices: choices}
}

func (e *envelope) head(dst []byte, object string) []byte {
	dst = appendString(append(dst, `{"id":`...), e.id)
	dst = appendString(append(dst, `,"object":`...), object)
	dst = appendInt(append(dst, `,"created":`...), e.created)
	dst = appendString(append(dst, `,"model":`...), e.model)
	return append(dst, `,"choices":[`...)
}

func (e *envelope) whole(out *pieces, u usage) {
	object, _ := e.answer.object()
	out.buf = e.head(out.buf, object)
	for i := range e.choices {
		out.buf = comma(out.buf)
		if out.buf = e.answer.choice(out.buf, i); !out.more() {
			return
		}
	}
	out.buf = appendUsage(append(out.buf, `],`...), u)
	out.buf = append(e.answer.extra(out.buf), '}', '\n')
}

type collected struct {
	text   []byte
	events []engine.Event // only with log probabilities
	finish engine.Finish
	stop   string
}

func (c *collected) add(ev *engine.Event, logprobs bool) {
	c.text = append(c.text, ev.Text...)
	if logprobs {
		c.events = append(c.events, *ev)
	}
	c.finish, c.stop = ev.Finish, ev.StopString
}

// appendFinish appends a choice's finish reason; null before its end.
func appendFinish(dst []byte, finish engine.Finish, stop string) []byte {
	if finish == "" {
		return append(dst, `,"finish_reason":null}`...)
	}
	dst = appendString(append(dst, `,"finish_reason":`...), string(finish))
	if stop != "" { // vLLM's field
		dst = appendString(append(dst, `,"stop_reason":`...), stop)
	}
	return append(dst, '}')
}

type words interface {
	Piece(id int32) []byte
	Token(id int32) string
	IsEnd(id int32) bool
}

// word returns a token's text; for a control token, which has none, its name.
func word(w words, id int32) (text string, raw []byte) {
	raw = w.Piece(id)
	if len(raw) == 0 {
		raw = []byte(w.Token(id))
	}
	return string(raw), raw
}

func scored(c sample.Choice) bool { return c.Token >= 0 }
