package engine

import (
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// sequence is one continuation. The step loop owns it.
type sequence struct {
	id      sched.ID
	live    bool // in loop.live
	told    bool // the first event was sent
	index   int
	request *accepted
	stream  *Stream
	matcher constrain.Matcher // nil: no grammar
	text    *tokenizer.StreamDecoder
	made    []int32 // generated tokens
	deaths  int     // of workers, since its last token

	stop   stopper
	mask   []uint64
	nth    int // within the request
	cached int // prompt tokens in the prefix cache
}

func (e *Engine) addSequences(s *Stream, r *accepted) error {
	spec := worker.Spec{Pool: string(r.Embed), Images: r.Images}
	if r.adapter != nil {
		spec.Adapter = r.adapter.ID
	}
	if r.Embed == "" {
		spec.Params = r.params(e.ends)
	}
	for i := range r.N {
		q := &sequence{
			index: len(s.sequences), nth: i, request: r, stream: s,
			text: e.tok.Stream(),
			stop: newStopper(r.Stop, r.KeepStop),
		}
		if r.Grammar != nil {
			q.matcher = r.Grammar.Matcher()
			q.mask = make([]uint64, constrain.Words(e.model.Vocab))
		}
		s.sequences = append(s.sequences, q)
	}
	var err error
	r.base = spec
	r.spec, err = spec.JSON()
	return err
}

// params: a grammar's mask enforces MinTokens as far as it can.
func (r *accepted) params(ends []int32) sample.Params {
	p := r.Sampling.WithSeed()
	if r.Grammar == nil && r.MinTokens > 0 {
		p.MinTokens, p.Ends = r.MinTokens, r.endTokens(ends)
	}
	return p
}

func (r *accepted) endTokens(ends []int32) []int32 {
	if r.IgnoreEnd {
		return r.StopTokens
	}
	return append(ends[:len(ends):len(ends)], r.StopTokens...)
}

func (q *sequence) known() []int32 {
	prompt := q.request.Prompt
	return append(prompt[:len(prompt):len(prompt)], q.made...)
}

// root begins the request's chain of blocks.
func (r *accepted) root() block.Hash {
	key := block.Key{Salt: r.Salt, Images: r.pictured}
	if r.adapter != nil {
		key.Adapter = r.adapter.identity
	}
	return key.Root()
}

func (q *sequence) spec() []byte {
	if q.nth == 0 {
		return q.request.spec
	}
	s := q.request.base
	s.Index = q.nth
	b, err := s.JSON()
	if err != nil {
		panic("engine: parameters that were encoded before can't be: " + err.Error())
	}
	return b
}

func (q *sequence) allow(ends []int32) []uint64 {
	q.matcher.Mask(q.mask)
	if len(q.made) >= q.request.MinTokens {
		return q.mask
	}
	without := slices.Clone(q.mask)
	for _, t := range q.request.endTokens(ends) {
		without[t>>6] &^= 1 << (t & 63)
	}
	if slices.Max(without) == 0 {
		return q.mask // only an end token is left
	}
	return without
}

// next applies a token and fills in its event.
//
//  1. An end token or stop token has no text.
//  2. A stop string is complete: the text is cut before it.
//  3. The grammar's text is complete.
//  4. max_tokens is reached: held text is sent.
func (q *sequence) next(ev *Event, choice *sample.Choice, e *Engine) error {
	q.begin(ev)
	if q.request.NoTokens {
		ev.Finish = FinishLength
		return nil
	}
	if q.matcher != nil {
		if err := q.matcher.Accept(choice.Token); err != nil {
			return err
		}
	}
	q.made = append(q.made, choice.Token)
	ev.Choice = *choice
	ev.Choice.Top = slices.Clone(choice.Top)
	if q.ends(choice.Token, e) { // 1
		ev.Text, ev.Finish = q.stop.flush()+q.text.Flush(), FinishStop
		return nil
	}
	complete := q.matcher != nil && q.matcher.Done()
	last := len(q.made) >= q.request.MaxTokens
	piece := q.text.Write(choice.Token)
	if complete || last {
		piece += q.text.Flush()
	}
	found := false
	if len(q.made) >= q.request.MinTokens { // else a stop string does not count yet
		piece, found = q.stop.write(piece)
	}
	ev.Text = piece
	switch {
	case found: // 2
		ev.Finish, ev.StopString = FinishStop, q.stop.found
	case complete: // 3
		ev.Text += q.stop.flush()
		ev.Finish = FinishStop
	case last: // 4
		ev.Text += q.stop.flush()
		ev.Finish = FinishLength
	}
	return nil
}

// begin: a sequence's first event reports on the prompt.
func (q *sequence) begin(ev *Event) {
	*ev = Event{}
	ev.Index, ev.Token = q.index, -1
	if !q.told {
		ev.Prompt, ev.Cached, q.told = q.request.scores, q.cached, true
	}
}

func (q *sequence) ends(token int32, e *Engine) bool {
	if !q.request.IgnoreEnd && e.tok.IsEnd(token) {
		return true
	}
	return slices.Contains(q.request.StopTokens, token)
}
