package proxy

import "bytes"

// ending watches a stream of events for what makes it whole. It sees whole
// lines, except that one longer than a buffer comes in parts.
type ending struct {
	style    style
	finished bool // a finish_reason was seen
	ended    bool // the stream's last event was seen
	inLine   bool // the next bytes belong to a line whose beginning was seen
	inEvent  bool // the last line was not empty: an event is open
}

var (
	wordDone   = []byte("[DONE]")
	wordFinish = []byte(`"finish_reason":`)
	wordError  = []byte(`{"error":`)
)

// scan looks at the next part of the stream.
func (e *ending) scan(p []byte) {
	for len(p) > 0 {
		line, rest, whole := p, []byte(nil), false
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			line, rest, whole = p[:i], p[i+1:], true
		}
		e.line(bytes.TrimSuffix(line, []byte("\r")), e.inLine)
		e.inLine = !whole
		p = rest
	}
}

func (e *ending) line(line []byte, continued bool) {
	if len(line) == 0 && !continued {
		e.inEvent = false
		return
	}
	e.inEvent = true
	if e.ended || e.style == plain {
		return
	}
	if e.style == completion && !e.finished {
		e.finished = finishes(line)
	}
	if continued {
		return
	}
	if data, found := bytes.CutPrefix(line, []byte("data:")); found {
		data = bytes.TrimSpace(data[:min(len(data), 64)])
		e.ended = bytes.Equal(data, wordDone) || bytes.HasPrefix(data, wordError) || bytes.HasPrefix(data, []byte(`{"error" :`)) || e.last(typeOf(data))
	} else if name, found := bytes.CutPrefix(line, []byte("event:")); found {
		e.ended = e.last(string(bytes.TrimSpace(name[:min(len(name), 64)])))
	}
}

// last says whether name is the last event of the stream's protocol.
func (e *ending) last(name string) bool {
	switch name {
	case "response.completed", "response.failed", "response.incomplete":
		return e.style == responses
	case "message_stop":
		return e.style == messages
	case "error":
		return e.style == messages || e.style == responses
	}
	return false
}

// typeOf reads the type of data that begins with it: {"type":"NAME"…
func typeOf(data []byte) string {
	rest, found := bytes.CutPrefix(data, []byte(`{"type":`))
	if !found {
		return ""
	}
	rest, found = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(`"`))
	name, _, closed := bytes.Cut(rest, []byte(`"`))
	if !found || !closed {
		return ""
	}
	return string(name)
}

// finishes finds a finish_reason that is not null. In a client's text its
// quotes would be escaped.
func finishes(line []byte) bool {
	for {
		i := bytes.Index(line, wordFinish)
		if i < 0 {
			return false
		}
		line = bytes.TrimLeft(line[i+len(wordFinish):], " ")
		if len(line) > 0 && line[0] == '"' {
			return true
		}
	}
}

// whole says whether the stream was whole, given that it came to a proper end.
func (e *ending) whole(proper bool) bool {
	return e.ended || (proper && (e.finished || e.style == plain))
}
