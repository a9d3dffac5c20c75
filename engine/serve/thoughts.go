package serve

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// thoughts says how a model writes what it thinks before it answers. Templates of models that think have the marks too: to leave
// out thoughts of earlier turns, or to begin new ones.
type thoughts struct {
	tok        *tokenizer.Tokenizer
	begin, end int32    // the marks, where they are control tokens, which are not in the text; -1: they are text
	ending     []int32  // what ends them
	all, open  []uint64 // masks of all tokens, and of those that end no text
}

const (
	beginThought = "<think>"
	endThought   = "</think>"
)

// newThoughts reads a chat template; nil: its model does not think.
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

// parser is one for the answer to a prompt, whose end may have begun the thoughts, or ended them before there were any.
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

// thoughtParser divides an answer, which comes in pieces, into thoughts and text. What may be the beginning of a mark is held back until
// it is certain. White space around thoughts belongs to neither. It belongs to one choice of one answer.
type thoughtParser struct {
	of    *thoughts
	state thoughtState
	held  string
	said  bool // of the part that is under way something was told
}

type thoughtState int

const (
	beginning thoughtState = iota // the answer may begin with thoughts
	thinking
	ended // behind thoughts, where white space is none of the text's
	answering
)

// write takes the next piece, with the token that it came with.
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

// think takes what is certain of the thoughts.
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

// close returns what was held back: the answer is over.
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

// within says whether the thoughts are under way.
func (p *thoughtParser) within() bool { return p.state == thinking }

// first is a grammar of answers that begin with thoughts of at most so many tokens (-1: any number), as far as there are any, and go on with
// a text of another grammar; nil: with any.
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
		if m.parser.state == beginning { // the form's beginning can't be told from that of thoughts
			m.parser.state = answering
		}
	}
	return m
}

// thoughtMatcher follows one answer. Within thoughts every token may come until there are too many; then only their end may.
type thoughtMatcher struct {
	g      *thoughtFirst
	parser thoughtParser
	then   constrain.Matcher // nil: any text
	made   int               // tokens of thoughts
	forced int               // tokens of the end that were forced
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
	case m.then != nil: // a text of the form is to follow
		clear(dst[copy(dst, t.open):])
	default:
		clear(dst[copy(dst, t.all):])
	}
}

// within says whether thoughts are under way.
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
	if m.forced == len(m.g.of.ending) && m.within() { // its last token had to end them
		m.parser.state, m.parser.held = ended, ""
	}
	if m.then != nil && answer != "" { // one token ended the thoughts and began the answer
		return &constrain.FormError{Message: "a token is the end of the thoughts and the beginning of the text: its form can't be kept"}
	}
	return nil
}

// Done implements [constrain.Matcher].
func (m *thoughtMatcher) Done() bool { return !m.within() && m.then != nil && m.then.Done() }

// efforts are OpenAI's words for how much a model is to think.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// think gives the template what a request asks of the thoughts: whether there are any, and how much. Variables that the client sets itself
// stay. The error names the field where the model does not think, as OpenAI's API has it.
func (c *chatRequest) think(t *thoughts) error {
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
		case t == nil:
			return badRequest("reasoning_effort", "the model does not think before it answers: leave reasoning_effort out")
		default:
			set("enable_thinking", "true")
			set("reasoning_effort", `"`+*e+`"`)
		}
	}
	if c.ThoughtTokens != nil && *c.ThoughtTokens < 0 {
		return badRequest("thinking_token_budget", "thinking_token_budget is %d: want a number from 0", *c.ThoughtTokens)
	}
	return nil
}
