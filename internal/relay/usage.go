package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Usage counts the tokens of an answer as it passes: the usage that the runtime reports, and after that the events that
// carry text. In a model's text the quotes of field names are escaped. The zero value is for an answer that is no stream.
type Usage struct {
	Style             api.Stream
	Prompt, Generated int           // as last reported; 0: not reported
	Cached            int           // of Prompt, those from the cache
	Events            int           // that carry text
	First, Last       time.Duration // of these events, since the request's arrival
	Decode            time.Duration // 0: not reported
	Reported          bool          // the numbers of [Usage.Tell] count

	since int // since Generated was reported
	kept  []byte
	tail  []byte
	by    [][]byte         // of a list of answers: the fields that may report for each; one, once it was seen
	each  map[string]Usage // as last reported by index, of a stream of several answers
	plain Plain            // a line that has text and no numbers
}

var (
	promptNames    = bytes.Fields([]byte(`"prompt_tokens" "input_tokens" "prompt_eval_count" "tokens_evaluated"`))
	generatedNames = bytes.Fields([]byte(`"completion_tokens" "output_tokens" "eval_count" "tokens_predicted" "predicted_n"`))
	cachedNames    = bytes.Fields([]byte(`"cached_tokens" "cache_n"`)) // the second is in llama-server's timings
	freshNames     = bytes.Fields([]byte(`"prompt_n"`))                // the uncached rest of the prompt, also in llama-server's timings
	readNames      = bytes.Fields([]byte(`"cache_read_input_tokens"`))
	createdNames   = bytes.Fields([]byte(`"cache_creation_input_tokens"`))
	usageNames     = bytes.Fields([]byte(`"usage" "meta_info"`)) // the second is in SGLang's own API
	ownNames       = bytes.Fields([]byte(`"tokens_predicted" "timings"`))
	listNames      = append(usageNames, ownNames[1])
	doneName       = []byte(`"done"`)
	millisName     = []byte(`"predicted_ms"`)
	nanosName      = []byte(`"eval_duration"`)
	textNames      = bytes.Fields([]byte(`"content" "text" "reasoning_content" "reasoning" "arguments"`))
	usageComment   = []byte(control.UsageComment)
)

// See processes whole events, which came at now, and returns how many carry text.
func (m *Usage) See(p []byte, now time.Duration) (events int) {
	for line := range Lines(p) {
		if said, is := bytes.CutPrefix(line, usageComment); is {
			m.Tell(string(said))
			continue
		}
		if m.Style != api.StreamLines && !bytes.HasPrefix(line, []byte("data:")) {
			continue
		}
		plain := m.plain.Is(line)
		text := plain || m.text(line)
		if text {
			events++
			m.since++
		}
		switch {
		case plain:
		case m.numbers(line) != nil:
			m.readIndexed(line)
		case text:
			m.plain.Learn(line)
		}
	}
	if events > 0 {
		if m.Events == 0 {
			m.First = now
		}
		m.Events += events
		m.Last = now
	}
	return events
}

// Take removes the comments of [control.UsageComment] from events, until the next call.
func (m *Usage) Take(p []byte) []byte {
	if !bytes.Contains(p, usageComment) {
		return p
	}
	m.kept = m.kept[:0]
	for line := range Lines(p) {
		if !bytes.HasPrefix(line, usageComment) {
			m.kept = append(m.kept, line...)
		}
	}
	return m.kept
}

// Tell sets the numbers that an instance reports ([control.HeaderUsage]). From then on nothing else counts.
func (m *Usage) Tell(said string) {
	var n [3]int
	for i, word := range strings.Fields(said) {
		v, err := strconv.ParseUint(word, 10, 32)
		if err != nil || i == len(n) {
			return
		}
		n[i] = int(v)
	}
	m.Reported = true
	m.Prompt, m.Cached, m.Generated = n[0], min(n[1], n[0]), n[2]
}

// Told formats the numbers for [Usage.Tell].
func (m *Usage) Told() string { return fmt.Sprint(m.Prompt, m.Cached, m.Tokens()) }

func (m *Usage) text(line []byte) bool {
	switch m.Style {
	case api.StreamCompletion, api.StreamAgent: // an agent's are either API's events
		return slices.ContainsFunc(textNames, func(name []byte) bool { return says(line, name) }) || m.Style == api.StreamAgent && bytes.Contains(line, []byte(`.delta"`))
	case api.StreamResponses:
		return bytes.Contains(line, []byte(`.delta"`)) && bytes.HasSuffix(eventType(line), []byte(`.delta"`))
	case api.StreamMessages:
		return bytes.Contains(line, []byte(`"content_block_delta"`)) && string(eventType(line)) == `"content_block_delta"` && !bytes.Contains(line, []byte(`"signature_delta"`))
	case api.StreamLines:
		return bytes.Contains(line, []byte(`"done":false`))
	}
	return false
}

// Index is [bytes.Index] for a quoted name. JSON is full of quotes, so it is faster to look for the rest of the name.
func Index(p, quoted []byte) int {
	for from := 0; ; {
		at := bytes.Index(p[from:], quoted[1:])
		if at < 0 {
			return -1
		}
		if at += from; at > 0 && p[at-1] == quoted[0] {
			return at - 1
		}
		from = at + 1
	}
}

func says(line, name []byte) bool {
	for v := value(line, name, `"`); v != nil; v = value(v, name, `"`) {
		if len(v) > 1 && v[1] != '"' {
			return true
		}
	}
	return false
}

// Plain recognises lines that differ from an earlier one only within a string that is not empty, and so mean the same.
type Plain struct {
	head, tail []byte // of the earlier line, around the string
	misses     int    // lines that were learned in vain
}

// Learn makes line the earlier one, if it has a text. It gives up on a stream whose lines differ elsewhere.
func (l *Plain) Learn(line []byte) {
	if l.misses++; l.misses > 8 {
		return
	}
	for _, name := range textNames {
		_, text, _ := bytes.Cut(value(line, name, `"`), []byte(`"`))
		if end := bytes.IndexByte(text, '"'); end > 0 && text[end-1] != '\\' {
			l.head, l.tail = bytes.Clone(line[:len(line)-len(text)]), bytes.Clone(text[end:])
			return
		}
	}
}

// Is reports whether line is like the earlier one.
func (l *Plain) Is(line []byte) bool {
	text, begins := bytes.CutPrefix(line, l.head)
	text, ends := bytes.CutSuffix(text, l.tail)
	if !begins || !ends || len(l.head) == 0 || len(text) == 0 || bytes.IndexByte(text, '"') >= 0 {
		return false
	}
	l.misses = 0
	return true
}

// value returns p from the first value of a field with the name that begins with one of these bytes. A name with another
// value, or without one, may be a word of a client or a model.
func value(p, name []byte, begins string) []byte {
	for at := Index(p, name); at >= 0; at = Index(p, name) {
		p = p[at+len(name):]
		if v, _ := colon(p); len(v) > 0 && strings.IndexByte(begins, v[0]) >= 0 {
			return v
		}
	}
	return nil
}

func lastValue(p, name []byte, begins string) (last []byte) {
	for v := value(p, name, begins); v != nil; v = value(v, name, begins) {
		last = v
	}
	return last
}

// eventType returns the type in an event's data, with quotes.
func eventType(line []byte) []byte {
	kind, _ := jsonfield.Find(bytes.TrimPrefix(line, []byte("data:")), "type")
	return kind
}

// mostKept bounds what is kept of a list of answers for its next part.
const mostKept = 64 << 10

// usageTail is how much of a part is read again with the next: the usage may lie across the cut.
const usageTail = 512

// Part processes the next part of an answer that is no stream.
func (m *Usage) Part(p []byte) {
	if len(p) == 0 {
		return
	}
	if m.tail == nil && p[0] == '[' {
		m.by = listNames
	}
	if m.by != nil {
		m.tail = append(m.tail, p...)
		for m.listed() {
		}
		return
	}
	if len(m.tail) > 0 {
		m.tail = append(m.tail, p[:min(len(p), usageTail)]...)
		m.Read(m.tail)
	}
	m.Read(p)
	seen := p
	if len(p) < usageTail && len(m.tail) > 0 {
		seen = m.tail
	}
	m.tail = append(m.tail[:0], seen[max(0, len(seen)-usageTail):]...)
}

// listed adds what the next answer of a list reports, as llama-server and SGLang send them.
func (m *Usage) listed() bool {
	var v []byte
	for i, name := range m.by {
		if v = value(m.tail, name, "{"); v != nil {
			m.by = m.by[i : i+1]
			break
		}
	}
	var whole json.RawMessage
	if v == nil || json.NewDecoder(bytes.NewReader(v)).Decode(&whole) != nil { // it may not be whole yet
		m.tail = m.tail[max(0, len(m.tail)-mostKept):]
		return false
	}
	one := Usage{Style: m.Style}
	one.Read(append(append(bytes.Clone(m.by[0]), ':'), whole...))
	m.add(one, Usage{})
	m.tail = v[len(whole):]
	return true
}

// readIndexed adds up SGLang's streams of several answers, which report for each by its index.
func (m *Usage) readIndexed(line []byte) {
	var index []byte
	if Index(line, usageNames[1]) >= 0 {
		index, _ = jsonfield.Find(bytes.TrimPrefix(line, []byte("data:")), "index")
	}
	if index == nil || len(index) > 9 || m.Reported {
		m.Read(line)
		return
	}
	if m.each == nil {
		m.each = map[string]Usage{}
	}
	was, known := m.each[string(index)]
	if !known && len(m.each) == 1<<12 {
		return
	}
	one := was
	one.Read(line)
	m.each[string(index)] = one
	m.since = 0
	m.add(one, was)
}

// add adds what one has beyond was.
func (m *Usage) add(one, was Usage) {
	m.Prompt += one.Prompt - was.Prompt
	m.Cached += one.Cached - was.Cached
	m.Generated += one.Generated - was.Generated
}

// Read reads the token numbers in p. The last ones count: they are totals.
func (m *Usage) Read(p []byte) {
	whole := p
	if p = m.numbers(p); p == nil { // the common case
		return
	}
	if d := duration(whole, millisName, time.Millisecond) + duration(whole, nanosName, time.Nanosecond); d > 0 {
		m.Decode = d
	}
	if m.Reported {
		return
	}
	starts := m.Style == api.StreamMessages && string(eventType(whole)) == `"message_start"` // nothing is generated yet, whatever number it has
	prompt, generated := number(p, promptNames, -1), number(p, generatedNames, -1)
	if fresh := number(p, freshNames, -1); prompt < 0 && fresh >= 0 {
		prompt = fresh + number(p, cachedNames, 0)
	}
	if generated > 0 && !starts {
		m.Generated, m.since = generated, 0
	}
	cached := number(p, cachedNames, m.Cached)
	if m.Style == api.StreamMessages && prompt >= 0 { // Anthropic's count excludes cached tokens
		cached = number(p, readNames, 0)
		prompt += cached + number(p, createdNames, 0)
	}
	if prompt > 0 { // otherwise it is not known yet
		m.Prompt, m.Cached = prompt, min(cached, prompt)
	}
}

// numbers returns the part of p that has its numbers; nil: none.
func (m *Usage) numbers(p []byte) []byte {
	lines := m.Style == api.StreamLines
	if (lines || m.Style == api.StreamPlain) && bytes.Contains(p, []byte(`eval_count"`)) {
		// Ollama's follow its end, which embeddings have not; a model's words may come before.
		if v := lastValue(p, doneName, "t"); v != nil || lines {
			return v
		}
		return p
	}
	if lines {
		return nil
	}
	for _, name := range usageNames {
		if v := lastValue(p, name, "{"); v != nil {
			return v
		}
	}
	for _, name := range ownNames {
		if Index(p, name) >= 0 {
			return p
		}
	}
	return nil
}

func duration(p, name []byte, unit time.Duration) time.Duration {
	at := Index(p, name)
	if at < 0 {
		return 0
	}
	v, _ := colon(p[at+len(name):])
	n, err := strconv.ParseFloat(string(v[:len(v)-len(bytes.TrimLeft(v, "0123456789+-.eE"))]), 64)
	if most := float64(24 * time.Hour / unit); err != nil || !(n > 0 && n < most) {
		return 0
	}
	return time.Duration(n * float64(unit))
}

func number(p []byte, names [][]byte, otherwise int) int {
	for _, name := range names {
		at := Index(p, name)
		if at < 0 {
			continue
		}
		v, _ := colon(p[at+len(name):])
		digits := len(v) - len(bytes.TrimLeft(v, "0123456789"))
		if n, err := strconv.Atoi(string(v[:min(digits, 12)])); err == nil {
			return n
		}
	}
	return otherwise
}

// Tokens returns the number that the runtime reported, plus one for each event since.
func (m *Usage) Tokens() int {
	if m.Reported {
		return m.Generated
	}
	return m.Generated + m.since
}
