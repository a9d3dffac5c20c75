package engine

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/sched"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// sequence is one continuation under way: everything about it but its place in
// the schedule. The step loop owns it.
type sequence struct {
	id      sched.ID
	index   int
	first   bool // of its request
	request *Request
	stream  *Stream

	sampler *sample.Sampler
	text    *tokenizer.StreamDecoder
	stop    stopper
	made    int             // tokens so far
	tokens  []int32         // those tokens
	scores  []sample.Choice // of the prompt's tokens from the second on
}

// params are the sampling parameters of a request, with the tokens that end its text.
func (r *Request) params(ends []int32) sample.Params {
	p := r.Sampling
	p.MinTokens, p.Ends = r.MinTokens, r.StopTokens
	if !r.IgnoreEnd {
		p.Ends = append(ends[:len(ends):len(ends)], r.StopTokens...)
	}
	return p
}

// score records the log probability of a prompt token, whose position is pos+1, from the logits at pos.
func (q *sequence) score(pos int, logits []float32) {
	if pos != len(q.scores) || pos+1 >= len(q.request.Prompt) {
		return // seen before a preemption, or not a prompt token
	}
	q.scores = append(q.scores, sample.Score(logits, q.request.Prompt[pos+1], q.request.Sampling.Top))
}

// next chooses a token and makes its event. Event.Finish tells whether it is the last.
//
//  1. An end token, or a stop token of the request: finished, and no text of its own.
//  2. A stop string is complete: finished, the text is cut before it.
//  3. max_tokens is reached: finished, and what was held back is text.
//  4. Else the text that is certain.
func (q *sequence) next(logits []float32, e *Engine) (Event, error) {
	ev := Event{Index: q.index, Choice: sample.Choice{Token: -1}}
	ev.Prompt, q.scores = q.scores, nil
	if q.request.NoTokens {
		ev.Finish = FinishLength
		return ev, nil
	}
	choice, err := q.sampler.Next(logits, q.request.Prompt, q.tokens, len(q.request.Prompt)+q.made, nil)
	if err != nil {
		return Event{}, fmt.Errorf("choose token %d: %w", q.made+1, err)
	}
	q.made++
	q.tokens = append(q.tokens, choice.Token)
	ev.Choice = choice
	if q.ends(choice.Token, e) { // 1
		ev.Text, ev.Finish = q.stop.flush()+q.text.Flush(), FinishStop
		return ev, nil
	}
	piece := q.text.Write(choice.Token)
	last := q.made >= q.request.MaxTokens
	if last {
		piece += q.text.Flush()
	}
	if q.made < q.request.MinTokens { // a stop string does not count yet
		ev.Text = piece
		return ev, nil
	}
	var found bool
	if ev.Text, found = q.stop.write(piece); found { // 2
		ev.Finish, ev.StopString = FinishStop, q.stop.found
	} else if last { // 3
		ev.Text += q.stop.flush()
		ev.Finish = FinishLength
	}
	return ev, nil
}

func (q *sequence) ends(token int32, e *Engine) bool {
	if !q.request.IgnoreEnd && e.tok.IsEnd(token) {
		return true
	}
	for _, t := range q.request.StopTokens {
		if t == token {
			return true
		}
	}
	return false
}
