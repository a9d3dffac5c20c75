package serve

import (
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/sample"
)

const maxPrompts = 256

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	paid, model, adapter, err := s.readFor(w, r, &c, &c.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	req, err := c.request()
	if err != nil {
		return err
	}
	if len(c.Prompt) == 0 || len(c.Prompt) > maxPrompts {
		return badRequest("prompt", "%d prompts: want 1 to %d", len(c.Prompt), maxPrompts)
	}
	if req.Grammar, err = s.grammar(r.Context(), &c.structure, nil, nil); err != nil {
		return err
	}
	req.Adapter, req.Tenant = adapter, tenant(r)
	a := &textAnswer{words: s.engine.Tokenizer(), logprobs: c.Logprobs != nil, top: or(c.Logprobs, 0), echo: c.Echo, n: req.N, promptTop: c.PromptLogprobs}
	requests := make([]engine.Request, len(c.Prompt))
	for i, p := range c.Prompt {
		requests[i] = req
		if requests[i].Prompt = p.tokens; p.tokens == nil {
			if requests[i].Prompt, err = s.encode(r.Context(), "prompt", p.text); err != nil {
				return err
			}
			if err = payTokens(r.Context(), paid, requests[i].Prompt); err != nil {
				return err
			}
		} else if c.Echo && len(p.tokens) <= s.engine.Context() {
			if err := s.checkTokens("prompt", p.tokens); err != nil {
				return err
			}
			p.text = s.engine.Tokenizer().Decode(p.tokens)
		}
		a.prompts = append(a.prompts, textPrompt{text: p.text, tokens: requests[i].Prompt})
	}
	n := len(requests) * req.N
	a.scores = make([][]sample.Choice, n)
	a.choices = make([]collected, n)
	a.offsets, a.begun = make([]int, n), make([]bool, n)
	return s.generate(w, r, &c.options, newEnvelope("cmpl-", model, n, a), requests)
}

type textPrompt struct {
	text   string
	tokens []int32
}

type textAnswer struct {
	words    words
	logprobs bool
	top      int
	echo     bool
	n        int // choices per prompt
	prompts  []textPrompt
	choices  []collected

	promptTop *int
	scores    [][]sample.Choice // of each choice's prompt

	offsets []int  // characters of each choice covered so far
	begun   []bool // the choice has log probabilities; with echo the prompt's come first
}

func (*textAnswer) object() (whole, chunk string) { return "text_completion", "text_completion" }

func (*textAnswer) extra(dst []byte) []byte { return dst }

func (a *textAnswer) chunk(dst []byte, ev *engine.Event, first bool) []byte {
	if ev.Text == "" && ev.Finish == "" && !a.logprobs && !(a.echo && first) {
		return dst
	}
	text := ev.Text
	if a.echo && first {
		text = a.prompts[ev.Index/a.n].text + text
	}
	return a.append(dst, ev.Index, text, ev.Finish, ev.StopString, *ev)
}

func (a *textAnswer) collect(ev *engine.Event, first bool) {
	if a.echo && first {
		a.choices[ev.Index].text = append([]byte{}, a.prompts[ev.Index/a.n].text...)
	}
	if first && a.promptTop != nil {
		a.scores[ev.Index] = ev.Prompt
	}
	a.choices[ev.Index].add(ev, a.logprobs)
}

func (a *textAnswer) choice(dst []byte, index int) []byte {
	c := &a.choices[index]
	dst = a.append(dst, index, string(c.text), c.finish, c.stop, c.events...)
	if a.promptTop == nil {
		return dst
	}
	p := promptScores{words: a.words, top: *a.promptTop, scores: a.scores[index]}
	return append(p.append(append(dst[:len(dst)-1], ',')), '}')
}

func (a *textAnswer) append(dst []byte, index int, text string, finish engine.Finish, stop string, events ...engine.Event) []byte {
	dst = appendInt(append(dst, `{"index":`...), index)
	dst = appendString(append(dst, `,"text":`...), text)
	dst = append(dst, `,"logprobs":`...)
	if a.logprobs {
		dst = a.appendLogprobs(dst, index, events)
	} else {
		dst = append(dst, `null`...)
	}
	return appendFinish(dst, finish, stop)
}

type entry struct {
	sample.Choice
	none bool
}

// appendLogprobs appends the completions API's four parallel lists. Offsets are in characters.
func (a *textAnswer) appendLogprobs(dst []byte, index int, events []engine.Event) []byte {
	var entries []entry
	if a.echo && !a.begun[index] && len(events) > 0 {
		prompt, scores := a.prompts[index/a.n].tokens, events[0].Prompt
		entries = append(entries, entry{Choice: sample.Choice{Token: prompt[0]}, none: true})
		for _, c := range scores {
			entries = append(entries, entry{Choice: c})
		}
		for _, t := range prompt[min(1+len(scores), len(prompt)):] { // their event was sent by another server
			a.offsets[index] += utf8.RuneCount(a.words.Piece(t))
		}
	}
	a.begun[index] = true
	for i := range events {
		if scored(events[i].Choice) {
			entries = append(entries, entry{Choice: events[i].Choice})
		}
	}
	list := func(name string, item func(e *entry)) {
		dst = append(appendString(dst, name), ':', '[')
		for i := range entries {
			dst = comma(dst)
			item(&entries[i])
		}
		dst = append(dst, ']')
	}
	dst = append(dst, '{')
	list("tokens", func(e *entry) {
		text, _ := word(a.words, e.Token)
		dst = appendString(dst, text)
	})
	dst = append(dst, ',')
	list("token_logprobs", func(e *entry) {
		if e.none {
			dst = append(dst, `null`...)
			return
		}
		dst = appendLogprob(dst, e.Logprob)
	})
	dst = append(dst, ',')
	list("top_logprobs", func(e *entry) { dst = a.appendTop(dst, e) })
	dst = append(dst, ',')
	list("text_offset", func(e *entry) {
		dst = appendInt(dst, a.offsets[index])
		a.offsets[index] += utf8.RuneCount(a.words.Piece(e.Token))
	})
	return append(dst, '}')
}

// appendTop appends an object from token texts to log probabilities: of equal texts the most probable.
func (a *textAnswer) appendTop(dst []byte, e *entry) []byte {
	if e.none {
		return append(dst, `null`...)
	}
	seen := map[string]bool{}
	dst = append(dst, '{')
	for _, t := range append(slices.Clone(e.Top[:min(a.top, len(e.Top))]), sample.Alternative{Token: e.Token, Logprob: e.Logprob}) {
		text, _ := word(a.words, t.Token)
		if text = string([]rune(text)); seen[text] { // as JSON encodes it
			continue
		}
		seen[text] = true
		dst = appendLogprob(append(appendString(comma(dst), text), ':'), t.Logprob)
	}
	return append(dst, '}')
}
