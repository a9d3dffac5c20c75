package serve

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// thoughts is how a model marks reasoning. The chat template has the marks too.
type thoughts struct {
	tok        *tokenizer.Tokenizer
	begin, end int32    // control tokens; -1: plain text
	ending     []int32  // tokens of the end mark; nil: the vocabulary can't write it
	all, open  []uint64 // masks of all tokens, and of all but end tokens
}

const (
	beginThought = "<think>"
	endThought   = "</think>"
)

// newThoughts returns nil if the template has no such reasoning.
func newThoughts(template string, tok *tokenizer.Tokenizer) *thoughts {
	if !strings.Contains(template, endThought) {
		return nil
	}
	t := &thoughts{tok: tok, begin: controlToken(tok, beginThought), end: controlToken(tok, endThought), ending: tok.Encode(endThought, true)}
	if t.end < 0 && !strings.HasSuffix(tok.Decode(t.ending), endThought) {
		t.ending = nil
	}
	words := constrain.Words(tok.Size())
	t.all, t.open = make([]uint64, words), make([]uint64, words)
	for id := range int32(tok.Size()) {
		t.all[id>>6] |= 1 << (id & 63)
		if !tok.IsEnd(id) {
			t.open[id>>6] |= 1 << (id & 63)
		}
	}
	return t
}

// The prompt's end may have begun the reasoning, or ended it.
func (t *thoughts) parser(prompt string) *thoughtParser {
	p := &thoughtParser{of: t}
	switch prompt = strings.TrimRight(prompt, " \t\r\n"); {
	case strings.HasSuffix(prompt, beginThought):
		p.state = thinking
	case strings.HasSuffix(prompt, endThought):
		p.state = answering
	}
	return p
}

// thoughtParser splits one choice, which comes in pieces. It holds back what may begin a mark, and drops white space
// around the reasoning.
type thoughtParser struct {
	of    *thoughts
	state thoughtState
	held  string
	said  bool // of the current part, something was returned
}

type thoughtState int

const (
	beginning thoughtState = iota // reasoning may begin
	thinking
	ended // white space is dropped
	answering
)

// token may be -1.
func (p *thoughtParser) write(token int32, text string) (thought, answer string) {
	switch token {
	case -1:
	case p.of.begin:
		text = beginThought + text
	case p.of.end:
		text = endThought + text
	}
	p.held += text
	if p.state == beginning {
		start := strings.TrimLeft(p.held, " \t\r\n")
		switch {
		case strings.HasPrefix(start, beginThought):
			p.state, p.held = thinking, start[len(beginThought):]
		case strings.HasPrefix(beginThought, start):
			return "", ""
		default:
			p.state = answering
		}
	}
	if p.state == thinking {
		thought = p.think()
	}
	if p.state == ended {
		if p.held = strings.TrimLeft(p.held, " \t\r\n"); p.held != "" {
			p.state = answering
		}
	}
	if p.state == answering {
		answer, p.held = p.held, ""
	}
	return thought, answer
}

func (p *thoughtParser) think() (thought string) {
	thought, rest, over := strings.Cut(p.held, endThought)
	certain := thought
	if !over {
		certain = cutPartial(thought, endThought)
	}
	inner := strings.TrimRight(certain, " \t\r\n")
	if !over {
		rest = thought[len(inner):]
	}
	if !p.said {
		inner = strings.TrimLeft(inner, " \t\r\n")
	}
	p.held, p.said = rest, p.said || inner != ""
	if over {
		p.state = ended
	}
	return inner
}

func (p *thoughtParser) close() (thought, answer string) {
	held := p.held
	p.held = ""
	switch p.state {
	case thinking:
		return strings.TrimRight(held, " \t\r\n"), ""
	case ended:
		return "", ""
	}
	return "", held
}

func (p *thoughtParser) within() bool { return p.state == thinking }

// first allows at most most tokens of reasoning (-1: any), then a text of then (nil: any).
func (t *thoughts) first(prompt string, most int, then constrain.Grammar) constrain.Grammar {
	return &thoughtFirst{of: t, begun: *t.parser(prompt), most: most, then: then}
}

type thoughtFirst struct {
	of    *thoughts
	begun thoughtParser
	most  int
	then  constrain.Grammar
}

func (g *thoughtFirst) Matcher() constrain.Matcher {
	m := &thoughtMatcher{g: g, parser: g.begun}
	if g.then != nil {
		m.then = g.then.Matcher()
		if m.parser.state == beginning { // the two beginnings can't be told apart
			m.parser.state = answering
		}
	}
	return m
}

// thoughtMatcher allows all tokens of reasoning up to the limit, then the end mark.
type thoughtMatcher struct {
	g      *thoughtFirst
	parser thoughtParser
	then   constrain.Matcher // nil: any text
	made   int               // of reasoning
	forced int               // of the end mark
}

func (m *thoughtMatcher) Mask(dst []uint64) {
	switch t := m.g.of; {
	case m.within() && m.g.most >= 0 && m.made >= m.g.most:
		clear(dst)
		next := t.ending[m.forced]
		dst[next>>6] |= 1 << (next & 63)
	case !m.within() && m.then != nil:
		m.then.Mask(dst)
	case m.then != nil: // a text of the form must follow
		clear(dst[copy(dst, t.open):])
	default:
		clear(dst[copy(dst, t.all):])
	}
}

func (m *thoughtMatcher) within() bool { return m.parser.within() }

func (m *thoughtMatcher) Accept(token int32) error {
	if !m.within() && m.then != nil {
		return m.then.Accept(token)
	}
	if m.within() {
		if m.g.most >= 0 && m.made >= m.g.most {
			if token != m.g.of.ending[m.forced] {
				return constrain.ErrForbidden
			}
			m.forced++
		} else if m.then != nil && m.g.of.tok.IsEnd(token) {
			return constrain.ErrForbidden
		}
		m.made++
	}
	_, answer := m.parser.write(token, string(m.g.of.tok.Piece(token)))
	if m.forced == len(m.g.of.ending) && m.within() { // the mark's last token must end it
		m.parser.state, m.parser.held = ended, ""
	}
	if m.then != nil && answer != "" { // one token ended one and began the other
		return &constrain.FormError{Message: "a token is the end of the thoughts and the beginning of the text: its form can't be kept"}
	}
	return nil
}

func (m *thoughtMatcher) Done() bool { return !m.within() && m.then != nil && m.then.Done() }

// efforts are OpenAI's.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// think leaves variables that the client set.
func (c *chatRequest) think(t *thoughts, h *harmony) error {
	set := func(name, value string) {
		if c.TemplateArgs == nil {
			c.TemplateArgs = map[string]json.RawMessage{}
		}
		if _, found := c.TemplateArgs[name]; !found {
			c.TemplateArgs[name] = json.RawMessage(value)
		}
	}
	if e := c.Effort; e != nil {
		switch {
		case !slices.Contains(efforts, *e):
			return badRequest("reasoning_effort", "reasoning_effort is %s: want %s", quote(*e), strings.Join(efforts, ", "))
		case *e == "none":
			set("enable_thinking", "false")
		case t == nil && h == nil:
			return badRequest("reasoning_effort", "the model does not think before it answers: leave reasoning_effort out")
		default:
			set("enable_thinking", "true")
			set("reasoning_effort", `"`+*e+`"`)
		}
	}
	if c.ThoughtTokens != nil && *c.ThoughtTokens < 0 {
		return badRequest("thinking_token_budget", "thinking_token_budget is %d: want a number from 0", *c.ThoughtTokens)
	}
	if c.ThoughtTokens != nil && (h != nil || t != nil && t.ending == nil) {
		return badRequest("thinking_token_budget", "the model's thoughts can't be ended early: leave thinking_token_budget out, or set reasoning_effort")
	}
	return nil
}
