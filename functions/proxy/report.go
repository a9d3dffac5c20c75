package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Reporter is implemented by a [Dialect] whose runtime can report the usage of its streams.
type Reporter interface {
	// Report makes a stream's body ask for usage as often as the runtime can report it, and returns the additions that the client did not
	// ask for.
	Report(path string, body *jsonfield.Object) relay.Asked
}

type report struct {
	asked   relay.Asked
	tells   bool                    // the activator wants it
	n       int                     // choices of each prompt
	learned *atomic.Pointer[[]byte] // the last value of the field that varies, as the runtime sent it

	choices map[int]counts // by index: its last report
	ended   int            // the choice that ended last
	total   counts         // of all choices, once reported
	held    [][]byte       // an event that finishes a choice, held until the next one: all of it, and its data
	kept    []byte         // memory of take's result

	plain relay.Plain // a chunk with text, without the field at its end
	like  chunk       // what such chunks have in common
}

const fieldTimings = "timings"

type counts struct {
	Prompt  int `json:"prompt_tokens"`
	Made    int `json:"completion_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`

	Fresh     int `json:"prompt_n"`
	Cached    int `json:"cache_n"`
	Predicted int `json:"predicted_n"`
}

func (r *report) request(of Dialect, path string, body *jsonfield.Object) {
	if reporter, is := of.(Reporter); is {
		r.asked = reporter.Report(path, body)
		n, _ := body.Find("n")
		_ = json.Unmarshal(n, &r.n)
	}
}

// take takes whole events, or a part of an oversized one, and returns the client's version, valid until the next call. It adds the
// numbers for the activator, removes what the client has not asked for, and updates meter. When finished is true nothing is held back.
func (r *report) take(p []byte, finished bool, meter *relay.Usage) []byte {
	if r.asked.Field == "" && !r.asked.Chunk && !r.tells || len(r.held) == 0 && !r.concern(p) {
		return p
	}
	r.kept = r.kept[:0]
	begin, at, end := 0, -1, 0 // of the event, and of its data line
	i := 0
	for line := range relay.Lines(p) {
		i += len(line)
		switch {
		case bytes.HasPrefix(line, []byte("data:")):
			at, end = i-len(line), i
		case len(bytes.TrimRight(line, "\r\n")) > 0:
		case at < begin: // without data, such as the LF of a CRLF whose CR came before
			r.kept = append(r.kept, p[begin:i]...)
			begin = i
		default:
			r.event(p[begin:at], p[at:end], p[end:i], meter)
			begin = i
		}
	}
	if begin < len(p) || finished {
		r.release(nil)
		r.kept = append(r.kept, p[begin:]...)
	}
	return r.kept
}

// concern reports whether p may contain a report, or text to change. In a model's text the quotes would be escaped.
func (r *report) concern(p []byte) bool {
	if relay.Index(p, []byte(`"usage"`)) >= 0 || relay.Index(p, []byte(`"`+fieldTimings+`"`)) >= 0 {
		return true
	}
	return (r.asked.Moves != "" || r.asked.Field == fieldTimings) && relay.Finishes(p)
}

// event takes an event as its data line, and the parts before and behind it.
func (r *report) event(before, line, behind []byte, meter *relay.Usage) {
	data := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
	c := r.chunk(data)
	if c.finishes {
		r.ended = c.index
	}
	said := ""
	if r.count(&c) {
		said = r.said()
		meter.Tell(said)
	}
	own := c.alone && c.usage != nil && r.asked.Chunk
	if own {
		r.release(&c)
	} else {
		r.release(nil)
	}
	if said != "" && r.tells {
		r.kept = append(append(append(r.kept, control.UsageComment...), said...), '\n')
	}
	if own {
		return
	}
	if c.field != nil && !c.alone && !c.keeps {
		end, null := "}", r.asked.Null != nil && r.asked.Null(data)
		if null {
			end = `,"` + r.asked.Field + `":null}`
		}
		changed := append(bytes.Clone(c.rest), end...)
		if c.object != nil {
			if null {
				c.object.Set(r.asked.Field, []byte("null"))
			} else {
				c.object.Delete(r.asked.Field)
			}
			whole := c.object.Bytes()
			if bytes.Equal(whole, changed) && (c.usage == nil || c.timings == nil) {
				r.plain.Learn(c.rest)
				r.like = chunk{index: c.index, finishes: c.finishes}
			}
			changed = whole
		}
		line, data = bytes.Replace(line, data, changed, 1), changed
	}
	event := bytes.Join([][]byte{before, line, behind}, nil)
	if r.asked.Chunk && r.asked.Moves != "" && c.finishes {
		r.held = [][]byte{event, data}
		return
	}
	r.kept = append(r.kept, event...)
}

// chunk reads a chunk. If it is like an earlier one, only the report at its end is read.
func (r *report) chunk(data []byte) chunk {
	rest, value := cutLast(data, r.asked.Field)
	c := r.like
	switch {
	case value == nil || !r.plain.Is(rest):
		c = readChunk(data, r.asked.Field)
	case r.asked.Field == fieldTimings:
		c.field, c.timings = value, value
	default:
		c.field, c.usage = value, value
	}
	c.rest = rest
	return c
}

// cutLast cuts a member off the end of an object. The value is nil if it is no flat object.
func cutLast(data []byte, name string) (rest, value []byte) {
	begin := `,"` + name + `":`
	at := max(0, bytes.LastIndex(data, []byte(begin)))
	value, found := bytes.CutPrefix(bytes.TrimSuffix(data[at:], []byte("}")), []byte(begin+"{"))
	if n := len(value) - 1; !found || bytes.IndexAny(value, "{}") != n {
		return nil, nil
	}
	return data[:at], data[at+len(begin) : len(data)-1]
}

// release passes on a held event. own is the chunk with the usage, which has the varying field's value; nil: another one came.
func (r *report) release(own *chunk) {
	if len(r.held) == 0 {
		return
	}
	event, data := r.held[0], r.held[1]
	r.held = nil
	var value []byte
	if own != nil {
		value, _ = own.object.Find(r.asked.Moves)
	} else if v := r.learned.Load(); v != nil {
		value = *v
	}
	if value != nil && string(value) != "null" {
		if own != nil {
			v := bytes.Clone(value)
			r.learned.Store(&v)
		}
		event = bytes.Replace(event, data, jsonfield.Set(data, r.asked.Moves, value), 1)
	}
	r.kept = append(r.kept, event...)
}

type chunk struct {
	object   *jsonfield.Object // nil: it is like an earlier one
	rest     []byte            // all before the field at its end; nil: that is not there
	usage    []byte
	timings  []byte
	field    []byte // the field asked for; nil: missing or null
	index    int    // of its first choice
	alone    bool   // empty list of choices
	finishes bool
	keeps    bool
}

func readChunk(data []byte, field string) chunk {
	c := chunk{object: jsonfield.Open(data)} // has no fields if data is no object
	value := func(name string) []byte {
		v, _ := c.object.Find(name)
		if string(v) == "null" {
			return nil
		}
		return v
	}
	c.usage, c.timings = value("usage"), value(fieldTimings)
	if field != "" {
		c.field = value(field)
	}
	if choices := value("choices"); choices != nil {
		c.alone = string(choices) == "[]"
		c.choice(choices)
	}
	c.keeps = field == fieldTimings && (c.finishes || string(value("stop")) == "true" ||
		slices.Contains([]string{`"response.completed"`, `"response.incomplete"`, `"response.failed"`}, string(value("type"))))
	return c
}

// Servers send one choice in each chunk.
func (c *chunk) choice(list []byte) {
	_ = jsonfield.Items(list, func(item []byte) bool {
		var o struct {
			Index  int             `json:"index"`
			Finish json.RawMessage `json:"finish_reason"`
		}
		_ = json.Unmarshal(item, &o)
		c.index, c.finishes = o.Index, len(o.Finish) > 0 && string(o.Finish) != "null"
		return false
	})
}

// count reports whether a chunk has numbers. Before the last chunk, each report is of one choice and its prompt.
func (r *report) count(c *chunk) bool {
	from := c.usage
	if from == nil {
		from = c.timings
	}
	var n counts
	if from == nil || json.Unmarshal(from, &n) != nil {
		return false
	}
	if c.usage == nil {
		n.Prompt, n.Made, n.Details.Cached = n.Fresh+n.Cached, n.Predicted, n.Cached
	}
	switch {
	case n.Prompt <= 0:
		return false
	case c.alone && r.asked.Field != fieldTimings:
		r.total = n
	default: // llama-server sends the usage behind the end of each choice
		if c.alone {
			c.index = r.ended
		}
		if r.choices == nil {
			r.choices = map[int]counts{}
		}
		r.choices[c.index] = n
	}
	return true
}

// said returns the whole stream's numbers in the form of [control.HeaderUsage].
func (r *report) said() string {
	u := relay.Usage{Prompt: r.total.Prompt, Cached: r.total.Details.Cached, Generated: r.total.Made}
	if u.Prompt > 0 {
		return u.Told()
	}
	prompts := map[int]bool{}
	for i, n := range r.choices {
		u.Generated += n.Made
		if of := i / max(r.n, 1); !prompts[of] {
			prompts[of] = true
			u.Prompt, u.Cached = u.Prompt+n.Prompt, u.Cached+n.Details.Cached
		}
	}
	return u.Told()
}

// Descriptions of models name files of the runtime's host, which clients must not learn.

// maxDescription has room for a tokenizer's whole vocabulary.
const maxDescription = 64 << 20

func (x *exchange) describe(ctx context.Context, resp *http.Response) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxDescription+1))
	switch {
	case err != nil:
		x.brokenBeforeFirstByte(ctx, err)
		return
	case len(raw) > maxDescription:
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime describes its model in more than %s", api.Bytes(maxDescription)))
		return
	}
	x.cfg.Gate.Moved()
	text := withoutPlaces(raw)
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	x.header(resp)
	if x.r.Method != http.MethodHead {
		x.write(text)
	}
}

// withoutPlaces reduces each path in strings of JSON, and in lines of a Modelfile, to its last element. All else stays.
func withoutPlaces(raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out []byte
	copied := 0
	for {
		before := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			return append(out, raw[copied:]...)
		}
		text, isText := token.(string)
		if !isText {
			continue
		}
		short := withoutPlace(text)
		if short == text {
			continue
		}
		start := int(before) + bytes.IndexByte(raw[before:], '"')
		quoted, _ := json.Marshal(short)
		out = append(append(out, raw[copied:start]...), quoted...)
		copied = int(dec.InputOffset())
	}
}

func withoutPlace(text string) string {
	if strings.HasPrefix(text, "/") && !strings.ContainsAny(text, "\n") {
		return path.Base(text)
	}
	if !strings.Contains(text, "FROM ") && !strings.Contains(text, "ADAPTER ") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		word, rest, _ := strings.Cut(strings.TrimPrefix(line, "# "), " ")
		if place := strings.Trim(rest, `" `); (word == "FROM" || word == "ADAPTER") && strings.HasPrefix(place, "/") {
			lines[i] = strings.Replace(line, place, path.Base(place), 1)
		}
	}
	return strings.Join(lines, "\n")
}
