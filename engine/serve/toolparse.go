package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"
)

type toolPart struct {
	text  string // if call is -1
	call  int
	id    string // if begin
	name  string // if begin
	args  string // more arguments, as JSON text
	begin bool
}

// toolParser finds calls in one choice, which comes in pieces. It holds back what may become a call, and the white
// space before it, which a call drops. After the first call, white space and separators alone are dropped.
type toolParser struct {
	format  *toolFormat
	use     *toolUse
	state   toolState
	held    string // may begin a marker, or is white space
	call    *callReader
	xml     *xmlCall        // nil: JSON
	raw     strings.Builder // of what may be text
	certain bool            // the current call was reported
	calls   int
	spoken  bool   // there was text
	since   bool   // there was text after the last call
	seed    string // of the calls' ids; "": random
	out     []toolPart
}

type toolState int

const (
	toolText  toolState = iota
	toolOpen            // a call or list must begin
	toolBare            // within a call
	toolNext            // after a call of a list
	toolClose           // an end marker must come
	toolName            // Mistral's newer form: a name before the arguments
)

func newToolParser(f *toolFormat, u *toolUse) *toolParser { return &toolParser{format: f, use: u} }

// token may be -1. The parts are valid until the next call.
func (p *toolParser) write(token int32, text string) []toolPart {
	p.out = p.out[:0]
	if token >= 0 && token == p.format.token && (p.state == toolText || p.state == toolNext) {
		p.state = toolText
		p.text(text)
		p.open()
		return p.out
	}
	for text != "" {
		text = p.step(text)
	}
	return p.out
}

func (p *toolParser) close() []toolPart {
	p.out = p.out[:0]
	if p.state == toolBare && !p.certain || p.state == toolName {
		p.giveUp()
	}
	if strings.TrimSpace(p.held) != "" || p.calls == 0 {
		p.emit(p.held)
	}
	p.held = ""
	return p.out
}

// step returns the rest that its state has not read.
func (p *toolParser) step(text string) string {
	switch p.state {
	case toolText:
		return p.text(text)
	case toolOpen:
		return p.opened(text)
	case toolBare:
		return p.inside(text)
	case toolName:
		return p.named(text)
	case toolNext:
		return p.next(text)
	}
	return p.ending(text)
}

// text looks for the beginning of a call:
//
//  1. A marker.
//  2. { or [ at the beginning of the answer, if calls may have no marker.
//  3. What may begin a marker, and white space, is held back.
func (p *toolParser) text(text string) string {
	p.held += text
	marker := p.format.begin
	if at := strings.Index(p.held, marker); marker != "" && p.format.token < 0 && at >= 0 { // 1
		rest := p.held[at+len(marker):]
		before := strings.TrimRight(p.held[:at], " \t\r\n")
		p.held = ""
		p.emit(before)
		p.open()
		return rest
	}
	start := strings.TrimLeft(p.held, " \t\r\n")
	if !p.spoken && p.bare() && start != "" && (start[0] == '{' || start[0] == '[') { // 2
		p.raw.WriteString(p.held[:len(p.held)-len(start)])
		p.held = ""
		p.state = toolOpen
		return start
	}
	certain := p.held // 3
	if p.format.token < 0 {
		certain = cutPartial(certain, marker)
	}
	certain = strings.TrimRight(certain, " \t\r\n")
	if certain != "" && !(p.calls > 0 && !p.since && strings.Trim(certain, "; \t\r\n") == "") {
		p.emit(certain)
		p.held = p.held[len(certain):]
	}
	return ""
}

// cutPartial cuts what may begin mark from the end of text.
func cutPartial(text, mark string) string {
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if rest, cut := strings.CutSuffix(text, mark[:n]); cut {
			return rest
		}
	}
	return text
}

func (p *toolParser) bare() bool { return p.format.end == "" && !p.format.list }

func (p *toolParser) emit(text string) {
	if text != "" {
		p.spoken, p.since = true, true
		p.out = append(p.out, toolPart{text: text, call: -1})
	}
}

func (p *toolParser) open() {
	if strings.TrimSpace(p.held) != "" {
		p.emit(strings.TrimRight(p.held, " \t\r\n"))
	}
	p.held = ""
	p.state = toolOpen
	p.raw.Reset()
	if p.format.token < 0 {
		p.raw.WriteString(p.format.begin)
	}
}

func (p *toolParser) opened(text string) string {
	for i := range len(text) {
		switch c := text[i]; {
		case c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '[' && p.format.end == "":
			p.raw.WriteByte(c)
		case c == '{', c == '<' && p.format.xml:
			if p.begin(); c == '<' {
				p.xml = &xmlCall{use: p.use}
			}
			return text[i:]
		case p.format.list:
			p.state = toolName
			return text[i:]
		default:
			p.giveUp()
			return text[i:]
		}
	}
	return ""
}

func (p *toolParser) begin() {
	p.state, p.certain, p.xml, p.call = toolBare, false, nil, &callReader{arguments: p.format.arguments}
}

// named parses name{…} or name[ARGS]{…}.
func (p *toolParser) named(text string) string {
	at := strings.IndexByte(text, '{')
	if at < 0 {
		p.raw.WriteString(text)
		if p.raw.Len() > maxToolName+64 {
			p.giveUp()
		}
		return ""
	}
	p.raw.WriteString(text[:at])
	all := p.raw.String()
	name, _, found := strings.Cut(all, "[ARGS]")
	name = name[strings.LastIndexByte(name, ']')+1:]
	if !found {
		name, _, _ = strings.Cut(name, "[")
	}
	p.begin()
	p.call.name, p.call.depth, p.call.value = strings.TrimSpace(name), -1, valueArguments
	return text[at:]
}

// inside works byte by byte: no result depends on the pieces.
func (p *toolParser) inside(text string) string {
	c := p.call
	for i := range len(text) {
		piece, ok := text[i:i+1], true
		if p.xml != nil {
			piece, ok = p.xml.write(text[i])
		}
		c.write(piece)
		c.bad = c.bad || !ok
		if !p.certain {
			p.raw.WriteByte(text[i])
		}
		switch known := c.name != "" && p.use.find(c.name) != nil; {
		case p.certain && c.bad: // the rest of the call is dropped
			p.tell()
			p.state = toolClose
			return text[i+1:]
		case p.certain && !c.done:
			continue
		case known && !c.bad && (c.begun || c.done):
			p.tell()
		case c.bad || c.done || c.name != "" && !known:
			p.giveUp()
			return text[i+1:]
		}
		if c.done {
			p.state = toolNext
			if p.format.end != "" {
				p.state = toolClose
			}
			p.certain = false
			p.raw.Reset()
			return text[i+1:]
		}
	}
	if p.certain {
		p.tell()
	}
	return ""
}

// tell drops calls after the first, if one is wanted.
func (p *toolParser) tell() {
	args := p.call.take()
	drop := !p.use.many && (p.calls > 1 || p.calls == 1 && !p.certain)
	if !p.certain {
		p.certain, p.since = true, false
		p.calls++
		if !drop {
			p.out = append(p.out, toolPart{call: p.calls - 1, id: p.newID(), name: p.call.name, begin: true})
		}
	}
	if args != "" && !drop {
		p.out = append(p.out, toolPart{call: p.calls - 1, args: args})
	}
}

func (p *toolParser) newID() string {
	text := rand.Text()
	if p.seed != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", p.seed, p.calls))
		text = base32.StdEncoding.EncodeToString(sum[:])
	}
	if p.format.shortIDs {
		return text[:9]
	}
	return "call_" + text[:24]
}

func (p *toolParser) giveUp() {
	p.state = toolText
	p.emit(p.raw.String())
	p.raw.Reset()
	p.spoken = true
}

// next is between calls without an end marker.
func (p *toolParser) next(text string) string {
	for i := range len(text) {
		switch c := text[i]; {
		case strings.IndexByte(" \t\r\n,;]", c) >= 0:
			p.raw.WriteByte(c)
		case c == '{':
			p.begin()
			return text[i:]
		default:
			p.state = toolText
			p.raw.Reset()
			return text[i:]
		}
	}
	return ""
}

func (p *toolParser) ending(text string) string {
	p.held += text
	if at := strings.Index(p.held, p.format.end); at >= 0 && p.format.end != "" {
		rest := p.held[at+len(p.format.end):]
		p.held = ""
		p.state = toolText
		return rest
	}
	keep := max(0, len(p.held)-len(p.format.end))
	for keep < len(p.held) && !utf8.RuneStart(p.held[keep]) {
		keep++
	}
	p.held = p.held[keep:]
	return ""
}
