package serve

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/sample"
)

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	paid, model, adapter, err := s.readFor(w, r, &c, &c.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	req, err := c.request()
	if err != nil {
		return err
	}
	use, err := c.toolUse()
	if err != nil {
		return err
	}
	h := s.toolFormat.harmony
	if c.Continue { // the answer is in the middle of a message
		h = nil
	}
	if req.Grammar, err = s.grammar(r.Context(), &c.structure, use, h); err != nil {
		return err
	}
	if err = c.think(s.thoughts, s.toolFormat.harmony); err != nil {
		return err
	}
	text, err := s.render(r.Context(), &c.prompt)
	if err != nil {
		return err
	}
	if req.Prompt, err = s.encode(r.Context(), "messages", text); err != nil {
		return err
	}
	if err = s.seeImages(r.Context(), paid, &c.pictures, &req); err != nil {
		return err
	}
	if err = payTokens(r.Context(), paid, req.Prompt); err != nil {
		return err
	}
	req.Adapter, req.Tenant = adapter, tenant(r)
	if !req.IgnoreEnd {
		req.Stop = append(req.Stop, s.stops...)
	}
	a := &chatAnswer{words: s.engine.Tokenizer(), logprobs: c.Logprobs, top: or(c.TopLogprobs, 0), choices: make([]chatChoice, req.N)}
	a.thoughts(s.thoughts, text, c.Continue, &req, c.ThoughtTokens)
	if use != nil {
		for i := range a.choices {
			a.choices[i].tools = newToolParser(s.toolFormat, use)
		}
	}
	if s.toolFormat.harmony != nil {
		for i := range a.choices {
			a.choices[i].harmony = s.toolFormat.harmony.parser(c.Continue)
		}
	}
	if c.PromptLogprobs != nil {
		a.prompt = &promptScores{words: s.engine.Tokenizer(), top: *c.PromptLogprobs}
	}
	err = s.generate(w, r, &c.options, newEnvelope("chatcmpl-", model, req.N, a), []engine.Request{req})
	return renamed(err, "prompt", "messages")
}

// grammar returns the grammar that a request's text must follow; nil: none.
//
//  1. Forced calls follow the form of calls.
//  2. With a form and tools, the model chooses between the form and calls.
//  3. Otherwise the form applies alone.
//
// In harmony the final text has the form, and reasoning may come first.
func (s *Server) grammar(ctx context.Context, f *structure, use *toolUse, h *harmony) (constrain.Grammar, error) {
	w, err := f.constraint()
	if h != nil && w != nil {
		w = h.final(*w)
	}
	switch {
	case err != nil:
		return nil, err
	case use != nil && use.forced: // 1
		w = use.constraint(s.toolFormat, nil)
	case w == nil:
		return nil, nil
	case use != nil: // 2
		w = use.constraint(s.toolFormat, w)
	}
	if h != nil {
		w = h.reasoned(*w)
	}
	return s.grammars.get(ctx, w) // 3
}

func (s *Server) render(ctx context.Context, p *prompt) (string, error) {
	p.reads = s.engine.Model().Image.Size > 0
	turns, err := p.turns()
	if err != nil {
		return "", err
	}
	begins := or(p.AddGenerationPrompt, !p.Continue)
	if p.Continue && begins {
		return "", badRequest("continue_final_message", "continue_final_message and add_generation_prompt are both true: want one")
	}
	text, err := s.template.Render(ctx, turns, chat.Options{
		AddGenerationPrompt: begins,
		Tools:               p.Tools,
		Extra:               p.TemplateArgs,
		Guard:               s.guard,
		Call:                s.toolFormat.text,
	})
	if err != nil {
		return "", templateError(err)
	}
	if text, err = p.place(text); err == nil && p.Continue {
		return s.unended(text, &turns[len(turns)-1])
	}
	return text, err
}

// unended cuts what the template adds after the last message.
func (s *Server) unended(text string, last *chat.Message) (string, error) {
	said := s.guard(last.Content)
	at := strings.LastIndex(text, strings.TrimSpace(said))
	if last.Role != "assistant" || strings.TrimSpace(said) == "" || at < 0 {
		return "", badRequest("continue_final_message", "the last message is not the assistant's, or has no text that the template shows: there is nothing to go on from")
	}
	if from := strings.TrimLeft(said, " \t\r\n"); strings.HasPrefix(text[at:], from) { // with trailing white space
		return text[:at+len(from)], nil
	}
	return text[:at+len(strings.TrimSpace(said))], nil
}

type chatAnswer struct {
	words    words
	logprobs bool
	top      int
	choices  []chatChoice
	prompt   *promptScores
}

type chatChoice struct {
	collected
	tools    *toolParser
	thoughts *thoughtParser // nil: no reasoning, or harmony
	harmony  *harmonyParser
	calls    []toolCall
	thought  []byte
	pondered int
}

type toolCall struct {
	id, name string
	args     []byte
}

func (*chatAnswer) object() (whole, chunk string) { return "chat.completion", "chat.completion.chunk" }

// thoughts makes the answer's reasoning be parsed, and lets the request's grammar begin with at most most tokens of
// reasoning. A grammar applies to the whole text unless the prompt begins the reasoning; a continued text has already
// begun.
func (a *chatAnswer) thoughts(t *thoughts, prompt string, continues bool, req *engine.Request, most *int) {
	if t == nil {
		return
	}
	p := t.parser(prompt)
	if (req.Grammar != nil || continues) && p.state == beginning {
		p.state = answering
	}
	for i := range a.choices {
		of := *p
		a.choices[i].thoughts = &of
	}
	if p.state != answering && (req.Grammar != nil || most != nil) {
		req.Grammar = t.first(prompt, or(most, -1), req.Grammar)
	}
}

// nameCalls derives the calls' ids from the answer's: a server that continues it gives the same ones.
func (a *chatAnswer) nameCalls(id string) {
	for i := range a.choices {
		if t := a.choices[i].tools; t != nil {
			t.seed = id + "/" + strconv.Itoa(i)
		}
	}
}

func (c *chatChoice) parts(ev *engine.Event) (thought string, parts []toolPart) {
	token, text := ev.Token, ev.Text
	if c.harmony != nil {
		if thought, parts = c.harmony.write(token, text, c.tools); c.harmony.state == harmonyThought && scored(ev.Choice) {
			c.pondered++
		}
		if ev.Finish != "" {
			parts = append(parts, c.harmony.close()...)
		}
		c.ends(ev)
		return thought, parts
	}
	if c.thoughts != nil {
		if c.thoughts.within() && scored(ev.Choice) {
			c.pondered++
		}
		if thought, text = c.thoughts.write(token, text); ev.Finish != "" {
			more, rest := c.thoughts.close()
			thought, text = thought+more, text+rest
		}
		if c.thoughts.within() {
			token = -1
		}
	}
	if c.tools == nil {
		return thought, []toolPart{{text: text, call: -1}}
	}
	parts = slices.Clone(c.tools.write(token, text))
	if ev.Finish != "" {
		parts = append(parts, c.tools.close()...)
	}
	c.ends(ev)
	return thought, parts
}

func (c *chatChoice) ends(ev *engine.Event) {
	if ev.Finish == engine.FinishStop && c.tools != nil && c.tools.calls > 0 {
		ev.Finish = finishTools
	}
}

const finishTools engine.Finish = "tool_calls"

func (a *chatAnswer) chunk(dst []byte, ev *engine.Event, first bool) []byte {
	e := *ev
	thought, parts := a.choices[e.Index].parts(&e)
	var text string
	calls := false
	for _, p := range parts {
		text += p.text
		calls = calls || p.call >= 0
	}
	if text == "" && thought == "" && !calls && e.Finish == "" && !first && !a.logprobs {
		return dst
	}
	dst = appendInt(append(dst, `{"index":`...), e.Index)
	dst = append(dst, `,"delta":{`...)
	if first {
		dst = append(dst, `"role":"assistant"`...)
	}
	if thought != "" {
		dst = appendString(append(comma(dst), `"reasoning_content":`...), thought)
	}
	switch {
	case text != "" || !calls && thought == "":
		dst = appendString(append(comma(dst), `"content":`...), text)
	case first:
		dst = append(comma(dst), `"content":null`...)
	}
	if calls {
		dst = comma(dst)
		dst = appendCallParts(dst, parts)
	}
	dst = append(dst, `},"logprobs":`...)
	dst = a.appendLogprobs(dst, e)
	return appendFinish(dst, e.Finish, e.StopString)
}

func appendCallParts(dst []byte, parts []toolPart) []byte {
	dst = append(dst, `"tool_calls":[`...)
	for i := 0; i < len(parts); i++ {
		p := parts[i]
		if p.call < 0 {
			continue
		}
		args := p.args
		for ; i+1 < len(parts) && parts[i+1].call == p.call; i++ {
			args += parts[i+1].args
		}
		dst = appendInt(append(comma(dst), `{"index":`...), p.call)
		if p.begin {
			dst = appendString(append(dst, `,"id":`...), p.id)
			dst = appendString(append(dst, `,"type":"function","function":{"name":`...), p.name)
			dst = append(dst, ',')
		} else {
			dst = append(dst, `,"function":{`...)
		}
		dst = append(appendString(append(dst, `"arguments":`...), args), `}}`...)
	}
	return append(dst, ']')
}

func (a *chatAnswer) collect(ev *engine.Event, first bool) {
	c, e := &a.choices[ev.Index], *ev
	if first && a.prompt != nil && e.Index == 0 {
		a.prompt.scores = e.Prompt
	}
	thought, parts := c.parts(&e)
	c.thought = append(c.thought, thought...)
	e.Text = ""
	for _, p := range parts {
		e.Text += p.text
		if p.begin {
			c.calls = append(c.calls, toolCall{id: p.id, name: p.name})
		}
		if p.call >= 0 {
			c.calls[p.call].args = append(c.calls[p.call].args, p.args...)
		}
	}
	c.add(&e, a.logprobs)
}

func (a *chatAnswer) choice(dst []byte, index int) []byte {
	c := &a.choices[index]
	dst = appendInt(append(dst, `{"index":`...), index)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	if len(c.calls) > 0 && len(c.text) == 0 {
		dst = append(dst, `null`...)
	} else {
		dst = appendString(dst, string(c.text))
	}
	dst = append(dst, `,"refusal":null`...)
	if len(c.thought) > 0 {
		dst = appendString(append(dst, `,"reasoning_content":`...), string(c.thought))
	}
	if len(c.calls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for _, t := range c.calls {
			dst = appendString(append(comma(dst), `{"id":`...), t.id)
			dst = appendString(append(dst, `,"type":"function","function":{"name":`...), t.name)
			dst = append(appendString(append(dst, `,"arguments":`...), string(t.args)), `}}`...)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `},"logprobs":`...)
	dst = a.appendLogprobs(dst, c.events...)
	return appendFinish(dst, c.finish, c.stop)
}

// pondered returns the tokens of reasoning. thinks: the model reasons at all.
func (a *chatAnswer) pondered() (tokens int, thinks bool) {
	for i := range a.choices {
		tokens += a.choices[i].pondered
		thinks = thinks || a.choices[i].thoughts != nil || a.choices[i].harmony != nil
	}
	return tokens, thinks
}

func (a *chatAnswer) extra(dst []byte) []byte {
	if a.prompt == nil {
		return dst
	}
	return a.prompt.append(append(dst, ','))
}

// appendLogprobs appends {"content":[…]}, or null.
func (a *chatAnswer) appendLogprobs(dst []byte, events ...engine.Event) []byte {
	if !a.logprobs {
		return append(dst, `null`...)
	}
	dst = append(dst, `{"content":[`...)
	for i := range events {
		c := &events[i].Choice
		if !scored(*c) || a.words.IsEnd(c.Token) {
			continue
		}
		dst = a.appendToken(comma(dst), sample.Alternative{Token: c.Token, Logprob: c.Logprob})
		dst = append(dst, `,"top_logprobs":[`...)
		for j, t := range c.Top[:min(a.top, len(c.Top))] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(a.appendToken(dst, t), '}')
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendToken leaves the object open.
func (a *chatAnswer) appendToken(dst []byte, t sample.Alternative) []byte {
	text, raw := word(a.words, t.Token)
	dst = appendString(append(dst, `{"token":`...), text)
	dst = appendLogprob(append(dst, `,"logprob":`...), t.Logprob)
	dst = append(dst, `,"bytes":[`...)
	for _, b := range raw {
		dst = comma(dst)
		dst = appendInt(dst, int(b))
	}
	return append(dst, ']')
}
