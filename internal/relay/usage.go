package relay

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Usage counts the tokens of an answer as it passes: what the runtime says of its usage, and until
// it does, the events that carry text. It looks for the field names as they stand in JSON; in a
// model's text their quotes would be escaped. The zero value is an answer that is no stream.
type Usage struct {
	Style             api.Stream
	Prompt, Generated int           // tokens, as the runtime says; 0: it does not
	Cached            int           // those of Prompt that it had in its cache, as far as it says
	Events            int           // that carry text
	First, Last       time.Duration // when the first and the last of them came, since the request's arrival
	Decode            time.Duration // how long it generated, as the runtime says; 0: it does not

	tail []byte // the end of the parts that [Usage.Part] has seen
}

// field names of usage by style.
var (
	promptNames    = [][]byte{[]byte(`"prompt_tokens"`), []byte(`"input_tokens"`), []byte(`"prompt_eval_count"`), []byte(`"tokens_evaluated"`)}
	generatedNames = [][]byte{[]byte(`"completion_tokens"`), []byte(`"output_tokens"`), []byte(`"eval_count"`), []byte(`"tokens_predicted"`)}
	cachedNames    = [][]byte{[]byte(`"cached_tokens"`), []byte(`"cache_n"`)} // the second is llama-server's, of its times
	readNames      = [][]byte{[]byte(`"cache_read_input_tokens"`)}
	createdNames   = [][]byte{[]byte(`"cache_creation_input_tokens"`)}
	usageName      = []byte(`"usage"`)
	millisName     = []byte(`"predicted_ms"`)  // llama-server's
	nanosName      = []byte(`"eval_duration"`) // Ollama's, of its own API
	textNames      = [][]byte{[]byte(`"content":"`), []byte(`"text":"`), []byte(`"reasoning_content":"`), []byte(`"reasoning":"`), []byte(`"arguments":"`)}
)

// See looks at whole events, which came at now, and returns how many carry text.
func (m *Usage) See(p []byte, now time.Duration) (events int) {
	for len(p) > 0 {
		line := p
		if at := bytes.IndexByte(p, '\n'); at >= 0 {
			line, p = p[:at], p[at+1:]
		} else {
			p = nil
		}
		if m.Style != api.StreamLines && !bytes.HasPrefix(line, []byte("data:")) {
			continue
		}
		if m.text(line) {
			events++
		}
		m.Read(line)
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

// text says whether a line carries text of the model's.
func (m *Usage) text(line []byte) bool {
	switch m.Style {
	case api.StreamCompletion:
		for _, name := range textNames {
			if at := bytes.Index(line, name); at >= 0 && at+len(name) < len(line) && line[at+len(name)] != '"' {
				return true
			}
		}
		return false
	case api.StreamResponses:
		return bytes.Contains(line[:min(len(line), 80)], []byte(`.delta"`))
	case api.StreamMessages:
		return bytes.Contains(line[:min(len(line), 80)], []byte(`"content_block_delta"`))
	case api.StreamLines:
		return bytes.Contains(line, []byte(`"done":false`))
	}
	return false
}

// usageTail is how much of one part of an answer is seen again with the next: its usage may lie across.
const usageTail = 512

// Part looks at the next part of an answer that is no stream.
func (m *Usage) Part(p []byte) {
	if len(p) == 0 {
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

// Read reads the numbers of tokens that stand in p. The last ones count: they are totals.
func (m *Usage) Read(p []byte) {
	if d := duration(p, millisName, time.Millisecond) + duration(p, nanosName, time.Nanosecond); d > 0 {
		m.Decode = d
	}
	if m.Style != api.StreamLines {
		at := bytes.Index(p, usageName) // most have none; LastIndex is far slower
		switch {
		case at >= 0:
			p = p[at+bytes.LastIndex(p[at:], usageName):]
		case m.Decode == 0: // llama-server's own API has numbers without usage, beside its times
			return
		}
	} else if !bytes.Contains(p, []byte(`eval_count"`)) {
		return
	}
	m.Generated = number(p, generatedNames, m.Generated)
	if m.Style != api.StreamMessages {
		m.Prompt = number(p, promptNames, m.Prompt)
		m.Cached = min(number(p, cachedNames, m.Cached), m.Prompt)
		return
	}
	if input := number(p, promptNames, -1); input >= 0 { // Anthropic leaves what the cache has to do with out of it
		m.Cached = number(p, readNames, 0)
		m.Prompt = input + m.Cached + number(p, createdNames, 0)
	}
}

// duration is the number of units behind a name, 0 where there is none.
func duration(p, name []byte, unit time.Duration) time.Duration {
	at := bytes.Index(p, name)
	if at < 0 {
		return 0
	}
	p = bytes.TrimLeft(p[at+len(name):], " :")
	end := bytes.IndexFunc(p, func(r rune) bool { return (r < '0' || r > '9') && !strings.ContainsRune("+-.eE", r) })
	if end <= 0 {
		return 0
	}
	n, err := strconv.ParseFloat(string(p[:end]), 64)
	if most := float64(24 * time.Hour / unit); err != nil || !(n > 0 && n < most) {
		return 0
	}
	return time.Duration(n * float64(unit))
}

// number is the number behind one of the names, or otherwise.
func number(p []byte, names [][]byte, otherwise int) int {
	for _, name := range names {
		at := bytes.Index(p, name)
		if at < 0 {
			continue
		}
		n, digits := 0, 0
		for _, c := range bytes.TrimLeft(p[at+len(name):], " :") {
			if c < '0' || c > '9' || digits == 12 {
				break
			}
			n = n*10 + int(c-'0')
			digits++
		}
		if digits > 0 {
			return n
		}
	}
	return otherwise
}

// Tokens is how many were generated, as well as is known.
func (m *Usage) Tokens() int {
	if m.Generated > 0 {
		return m.Generated
	}
	return m.Events
}
