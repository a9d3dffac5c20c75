package serve

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// thoughts describes how a model marks its reasoning before the answer. The chat templates of such models contain the
// marks too: to drop the reasoning of earlier turns, or to begin it.
type thoughts struct {
	tok        *tokenizer.Tokenizer
	begin, end int32    // the marks, if they are control tokens, which do not show in the text; -1: they are text
	ending     []int32  // the tokens of the end mark
	all, open  []uint64 // masks of all tokens, and of all but end tokens
}

const (
	beginThought = "<think>"
	endThought   = "</think>"
)

// newThoughts reads a chat template; it returns nil if the model does not reason, or in another form.
func newThoughts(template string, tok *tokenizer.Tokenizer) *thoughts {
	if !strings.Contains(template, endThought) {
		return nil
	}
	t := &thoughts{tok: tok, begin: controlToken(tok, beginThought), end: controlToken(tok, endThought), ending: tok.Encode(endThought, true)}
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

// parser returns a parser for the answer to a prompt. The prompt's end may have begun the reasoning, or ended it at
// once.
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

// thoughtParser splits an answer, which comes in pieces, into reasoning and text. It holds back text that may begin a
// mark. White space around the reasoning is dropped. A parser belongs to one choice of one answer.
type thoughtParser struct {
	of    *thoughts
	state thoughtState
	held  string
	said  bool // something of the current part was returned
}

type thoughtState int

const (
	beginning thoughtState = iota // the answer may begin with reasoning
	thinking
	ended // after the reasoning, where white space is dropped
	answering
)

// write takes the next token and its text.
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

// think returns the reasoning that is certain.
func (p *thoughtParser) think() (thought string) {
	thought, rest, over := strings.Cut(p.held, endThought)
	certain := len(thought)
	if !over {
		for n := min(len(endThought)-1, certain); n > 0; n-- {
			if strings.HasSuffix(thought, endThought[:n]) {
				certain -= n
				break
			}
		}
		rest = thought[certain:]
	}
	inner := strings.TrimRight(thought[:certain], " \t\r\n")
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

// close returns the held-back text at the end of the answer.
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

// within reports whether the parser is inside the reasoning.
func (p *thoughtParser) within() bool { return p.state == thinking }

// first returns a grammar of answers that may begin with reasoning of at most most tokens (-1: no limit). A text of
// the grammar then follows; nil: any text.
func (t *thoughts) first(prompt string, most int, then constrain.Grammar) constrain.Grammar {
	return &thoughtFirst{of: t, begun: *t.parser(prompt), most: most, then: then}
}

type thoughtFirst struct {
	of    *thoughts
	begun thoughtParser
	most  int
	then  constrain.Grammar
}

// Matcher implements [constrain.Grammar].
func (g *thoughtFirst) Matcher() constrain.Matcher {
	m := &thoughtMatcher{g: g, parser: g.begun}
	if g.then != nil {
		m.then = g.then.Matcher()
		if m.parser.state == beginning { // the form's beginning can't be told from the reasoning's
			m.parser.state = answering
		}
	}
	return m
}

// thoughtMatcher follows one answer. Inside the reasoning every token is allowed, up to the limit; after that only the
// end mark is.
type thoughtMatcher struct {
	g      *thoughtFirst
	parser thoughtParser
	then   constrain.Matcher // nil: any text
	made   int               // tokens of reasoning
	forced int               // tokens of the end mark that were forced
}

// Mask implements [constrain.Matcher].
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

// Accept implements [constrain.Matcher].
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
	if m.forced == len(m.g.of.ending) && m.within() { // its last token must end the reasoning
		m.parser.state, m.parser.held = ended, ""
	}
	if m.then != nil && answer != "" { // one token ended the reasoning and began the answer
		return &constrain.FormError{Message: "a token is the end of the thoughts and the beginning of the text: its form can't be kept"}
	}
	return nil
}

// Done implements [constrain.Matcher].
func (m *thoughtMatcher) Done() bool { return !m.within() && m.then != nil && m.then.Done() }

// efforts are OpenAI's values of reasoning_effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// think passes the requested reasoning effort to the template. Variables set by the client win. As in OpenAI's API,
// the error names the field if the model does not reason.
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
	if c.ThoughtTokens != nil && h != nil {
		return badRequest("thinking_token_budget", "the format of the model's answers has no limit of its thoughts: leave thinking_token_budget out, or set reasoning_effort")
	}
	return nil
}
