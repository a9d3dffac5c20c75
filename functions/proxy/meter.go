package proxy

import (
	"bytes"
	"time"

	"github.com/rouse-dev/rouse/internal/stream"
)

// meter counts tokens in an answer as it passes: what the runtime says of its
// usage, and until it does, the events that carry text. It looks for the field
// names as they stand in JSON; in a model's text their quotes would be escaped.
type meter struct {
	style             stream.Style
	prompt, generated int           // as the runtime says; 0: it does not
	events            int           // that carry text
	first, last       time.Duration // when they came, since the request's arrival
}

// field names of usage by style.
var (
	promptNames    = [][]byte{[]byte(`"prompt_tokens"`), []byte(`"input_tokens"`), []byte(`"prompt_eval_count"`)}
	generatedNames = [][]byte{[]byte(`"completion_tokens"`), []byte(`"output_tokens"`), []byte(`"eval_count"`)}
	usageName      = []byte(`"usage"`)
	textNames      = [][]byte{[]byte(`"content":"`), []byte(`"text":"`), []byte(`"reasoning_content":"`), []byte(`"reasoning":"`), []byte(`"arguments":"`)}
)

// see looks at whole events, which came at now, and returns how many carry text.
func (m *meter) see(p []byte, now time.Duration) (events int) {
	for len(p) > 0 {
		line := p
		if at := bytes.IndexByte(p, '\n'); at >= 0 {
			line, p = p[:at], p[at+1:]
		} else {
			p = nil
		}
		if m.style != stream.Lines && !bytes.HasPrefix(line, []byte("data:")) {
			continue
		}
		if m.text(line) {
			events++
		}
		m.usage(line)
	}
	if events > 0 {
		if m.events == 0 {
			m.first = now
		}
		m.events += events
		m.last = now
	}
	return events
}

// text says whether a line carries text of the model's.
func (m *meter) text(line []byte) bool {
	switch m.style {
	case stream.Completion:
		for _, name := range textNames {
			if at := bytes.Index(line, name); at >= 0 && at+len(name) < len(line) && line[at+len(name)] != '"' {
				return true
			}
		}
		return false
	case stream.Responses:
		return bytes.Contains(line[:min(len(line), 80)], []byte(`.delta"`))
	case stream.Messages:
		return bytes.Contains(line[:min(len(line), 80)], []byte(`"content_block_delta"`))
	case stream.Lines:
		return bytes.Contains(line, []byte(`"done":false`))
	}
	return false
}

// usage reads the numbers of tokens that stand in p. The last ones count: they are totals.
func (m *meter) usage(p []byte) {
	if m.style != stream.Lines {
		at := bytes.Index(p, usageName) // most have none; LastIndex is far slower
		if at < 0 {
			return
		}
		p = p[at+bytes.LastIndex(p[at:], usageName):]
	} else if !bytes.Contains(p, []byte(`eval_count"`)) {
		return
	}
	m.prompt = number(p, promptNames, m.prompt)
	m.generated = number(p, generatedNames, m.generated)
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

// tokens is how many were generated, as well as is known.
func (m *meter) tokens() int {
	if m.generated > 0 {
		return m.generated
	}
	return m.events
}
