package corpus

// An exam asks a model the questions of pico's corpus and collects its greedy answers. It uses an infer.Inferencer
// directly, without scheduler or server, to measure the model and the forward pass alone:
//
//  1. The chats are written as ChatML and encoded.
//  2. As many as the cache holds are answered at once: one step for the prompts, then one step per token. A finished chat
//     leaves the batch.
//  3. An answer ends with an end token or at the model's context.

import (
	"context"
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// ChatML returns the text of a chat for the model, up to where its answer begins.
func ChatML(chat []Message) string {
	var b strings.Builder
	for _, m := range chat {
		fmt.Fprintf(&b, "<|im_start|>%s\n%s<|im_end|>\n", m.Role, m.Text)
	}
	return b.String() + "<|im_start|>" + string(Assistant) + "\n"
}

// Model is a model in an exam: a forward pass with an empty cache and no other use meanwhile, and its tokenizer.
type Model struct {
	Inferencer infer.Inferencer
	Tokens     *tokenizer.Tokenizer
}

// Answers returns the model's greedy answer to each chat. It blocks until all are answered or ctx ends.
func (m Model) Answers(ctx context.Context, chats [][]Message) ([]string, error) {
	count, size := m.Inferencer.Blocks()
	limit := m.Inferencer.Config().Context
	each := (limit + size - 1) / size
	room := min(count/each, 16)
	if room == 0 {
		return nil, fmt.Errorf("the cache of %d blocks holds no sequence of %d positions: give it %d blocks", count, limit, each)
	}
	var out []string
	for len(chats) > 0 {
		n := min(room, len(chats))
		var group []*paper
		for i, chat := range chats[:n] {
			p := &paper{fresh: m.Tokens.Encode(ChatML(chat), true)}
			for b := range each {
				p.blocks = append(p.blocks, int32(i*each+b))
			}
			if len(p.fresh) >= limit {
				return nil, fmt.Errorf("a chat has %d tokens, the model's context is %d", len(p.fresh), limit)
			}
			group = append(group, p)
		}
		if err := m.write(ctx, group, limit); err != nil {
			return nil, err
		}
		for _, p := range group {
			out = append(out, m.Tokens.Decode(p.answer))
		}
		chats = chats[n:]
	}
	return out, nil
}

// paper is one unfinished answer.
type paper struct {
	fresh  []int32 // tokens not yet in the cache
	pos    int     // tokens in the cache
	blocks []int32
	answer []int32
}

// write runs steps until every answer of the group has ended.
func (m Model) write(ctx context.Context, group []*paper, limit int) error {
	for open := group; len(open) > 0; {
		var b infer.Batch
		for _, p := range open {
			b.Items = append(b.Items, infer.Item{Tokens: p.fresh, Pos: p.pos, Blocks: p.blocks, Want: infer.Last})
		}
		out, err := m.Inferencer.Forward(ctx, &b)
		if err != nil {
			return fmt.Errorf("answer %d chats: %w", len(open), err)
		}
		var still []*paper
		for i, p := range open {
			p.pos += len(p.fresh)
			next := largest(out.Logits[i])
			if m.Tokens.IsEnd(next) || p.pos >= limit {
				continue
			}
			p.answer, p.fresh = append(p.answer, next), []int32{next}
			still = append(still, p)
		}
		open = still
	}
	return nil
}

func largest(x []float32) int32 {
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return int32(at)
}

// Mark is the result of an exam.
type Mark struct {
	Asked int
	// Right counts answers that corpus.Check accepts, Exact those equal to Task.Answer: they differ for stories.
	Right, Exact int
	// Wrong describes the first wrong answer, or is empty.
	Wrong string
}

// Percent returns the share of right answers.
func (m Mark) Percent() float64 { return 100 * float64(m.Right) / float64(m.Asked) }

// Questions draws n held-out questions of one skill.
func Questions(skill Skill, seed uint64, n int) []Sample {
	g := New(seed, HeldOut)
	out := make([]Sample, n)
	for i := range out {
		out[i] = g.SampleOf(skill)
	}
	return out
}

// Talks draws n chats with a history or a system message, of all skills in the mix of training, that end with a
// held-out question.
func Talks(seed uint64, n int) []Sample {
	g := New(seed, HeldOut)
	var out []Sample
	for len(out) < n {
		if s := g.Sample(); len(s.Messages) > 1 {
			out = append(out, s)
		}
	}
	return out
}

// Grade asks all the questions.
func (m Model) Grade(ctx context.Context, questions []Sample) (Mark, error) {
	chats := make([][]Message, len(questions))
	for i, q := range questions {
		chats[i] = q.Messages
	}
	answers, err := m.Answers(ctx, chats)
	if err != nil {
		return Mark{}, err
	}
	mark := Mark{Asked: len(questions)}
	for i, q := range questions {
		err := Check(q.Prompt(), answers[i])
		if err == nil {
			mark.Right++
		} else if mark.Wrong == "" {
			mark.Wrong = fmt.Sprintf("%q: %v", q.Prompt(), err)
		}
		if answers[i] == Parse(q.Prompt()).Answer() {
			mark.Exact++
		}
	}
	return mark, nil
}
