package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/sample"
)

type table map[uint64]*sequence

// state returns the lowest number of a state that no sequence has.
func (t table) state() (n int32) {
	used := make([]bool, len(t)+1)
	for _, q := range t {
		if int(q.state) < len(used) {
			used[q.state] = true
		}
	}
	return int32(slices.Index(used, false))
}

type sequence struct {
	tokens  []int32 // prompt and generated
	prompt  int
	blocks  []int32
	spec    Spec
	sampler *sample.Sampler // nil for a vector
	pool    pool
	state   int32  // number for the model
	step    uint64 // last with an item
}

// step is reused. copies and batch.Items have the indices of shares.
type step struct {
	batch   infer.Batch
	shares  []share // to compute
	out     Output
	choices []sample.Choice // backs out's tokens
	shared  bool            // other processes read the logits too
	copies  [][]float32     // of logits, since a sampler writes to its own
}

type share struct {
	item *Item
	seq  *sequence
	out  int // index in step.out.Items, or -1
}

// compute's errors are in the output.
func (s *server) compute(ctx context.Context, b *Batch) *Output {
	began := time.Now()
	st := &s.step
	st.out = Output{Step: b.Step, Items: st.out.Items[:0]}
	if s.inf == nil {
		st.out.Error = errNotLoaded.Error()
		return &st.out
	}
	s.prepare(b)
	err := s.scoreAhead(ctx)
	var result infer.Result
	if err == nil && (len(st.batch.Items) > 0 || len(st.batch.Copies) > 0) {
		result, err = s.inf.Forward(ctx, &st.batch)
	}
	if err == nil && len(st.shares) > 0 && (len(result.Logits) != len(st.shares) || len(result.Hidden) != len(st.shares)) {
		err = fmt.Errorf("the model answers %d and %d of %d sequences", len(result.Logits), len(result.Hidden), len(st.shares))
	}
	if err != nil {
		st.out = Output{Step: b.Step, Error: err.Error(), Items: st.out.Items[:0]}
	} else {
		s.finish(result)
	}
	st.out.Busy = time.Since(began)
	return &st.out
}

func (s *server) prepare(b *Batch) {
	st := &s.step
	st.shares = st.shares[:0]
	st.batch.Items, st.batch.Copies = st.batch.Items[:0], st.batch.Copies[:0]
	for _, id := range b.Ends {
		delete(s.table, id)
	}
	for _, c := range b.Copies {
		st.batch.Copies = append(st.batch.Copies, infer.Copy{From: c.From, To: c.To})
	}
	for i := range b.Items {
		it := &b.Items[i]
		out := -1
		if it.Sample || it.Score || it.Pool {
			out = len(st.out.Items)
			st.out.Items = append(st.out.Items, Out{ID: it.ID})
		}
		q, err := s.table.take(it, b.Step, s.inf.Config().Vocab)
		if err != nil {
			if out < 0 {
				out = len(st.out.Items)
				st.out.Items = append(st.out.Items, Out{ID: it.ID})
			}
			st.out.Items[out].Error = err.Error()
			continue
		}
		known := it.Pos + it.Count - len(it.Draft)
		if s.inf.Config().Encoder { // the last item of a sequence brings it whole
			if it.Pool {
				st.shares = append(st.shares, share{item: it, seq: q, out: out})
				st.batch.Items = append(st.batch.Items, infer.Item{Tokens: q.tokens[:known], Blocks: q.blocks, Want: q.want(it)})
			}
			continue
		}
		// Drafts are after the last token only while they are computed.
		tokens := append(q.tokens[:known:cap(q.tokens)], it.Draft...)
		if len(it.Draft) == 0 {
			tokens = q.tokens[:known]
		}
		st.shares = append(st.shares, share{item: it, seq: q, out: out})
		st.batch.Items = append(st.batch.Items, infer.Item{
			Tokens: tokens[it.Pos:], Pos: it.Pos, Blocks: q.blocks, Adapter: q.spec.Adapter, State: q.state, Want: q.want(it), Images: q.spec.Images,
		})
	}
}

func (t table) take(it *Item, step uint64, vocab int) (*sequence, error) {
	q := t[it.ID]
	if q != nil && q.step == step && step > 0 {
		return nil, fmt.Errorf("sequence %d is twice in step %d", it.ID, step)
	}
	if it.Begin {
		var err error
		if q, err = newSequence(it, vocab); err != nil {
			return nil, err
		}
		delete(t, it.ID)
		q.state = t.state()
		t[it.ID] = q
	}
	if q == nil {
		return nil, fmt.Errorf("sequence %d has not begun", it.ID)
	}
	q.step = step
	q.blocks = append(q.blocks, it.Blocks...)
	known := it.Pos + it.Count - len(it.Draft)
	switch {
	case known > len(q.tokens):
		return nil, fmt.Errorf("sequence %d has %d tokens, those before %d are wanted: an earlier step failed", it.ID, len(q.tokens), known)
	case it.Sample && known != len(q.tokens):
		return nil, fmt.Errorf("sequence %d has %d tokens, one is to be chosen after %d", it.ID, len(q.tokens), known)
	case it.Sample && q.sampler == nil:
		return nil, fmt.Errorf("sequence %d is for a vector, and a token is to be chosen", it.ID)
	}
	return q, nil
}

func newSequence(it *Item, vocab int) (*sequence, error) {
	spec, err := ParseSpec(it.Spec)
	if err == nil {
		err = spec.Validate(vocab)
	}
	if err != nil {
		return nil, err
	}
	q := &sequence{spec: spec, prompt: it.Prompt}
	q.tokens = append(make([]int32, 0, len(it.Tokens)+16), it.Tokens...)
	if spec.Pool == "" {
		q.sampler = sample.New(spec.Params, spec.Index)
	} else if q.pool, err = newPool(spec.Pool); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *sequence) want(it *Item) infer.Want {
	switch {
	case q.spec.Pool == poolRank:
		return infer.Rank
	case q.spec.Pool != "":
		return infer.Hidden
	case it.Score, len(it.Draft) > 0:
		return infer.All
	case it.Sample:
		return infer.Last
	}
	return infer.None
}

// maxLogits bounds one Forward, besides one row per sequence: 64 MiB.
const maxLogits = 16 << 20

// scored returns the most logits of scored prompts in one Forward. Ranks share less room, most of it for decoding.
func (st *step) scored(vocab int) int {
	if st.shared {
		return min(maxLogits, cpu.SharedLogits/4*vocab)
	}
	return maxLogits
}

// scoreAhead computes what is too large for one Forward. No result depends on where a prompt is cut.
func (s *server) scoreAhead(ctx context.Context) error {
	st := &s.step
	vocab := s.inf.Config().Vocab
	total := 0
	for i := range st.shares {
		if st.shares[i].item.Score {
			total += len(st.batch.Items[i].Tokens)
		}
	}
	most := st.scored(vocab)
	for total*vocab > most {
		piece := max(1, most/vocab)
		did := 0
		for i := range st.shares {
			sh, it := &st.shares[i], &st.batch.Items[i]
			n := min(piece, len(it.Tokens)-1)
			if !sh.item.Score || n == 0 {
				continue
			}
			part := *it
			part.Tokens = it.Tokens[:n]
			out, err := s.inf.Forward(ctx, &infer.Batch{Items: []infer.Item{part}, Copies: st.batch.Copies})
			if err != nil {
				return err
			}
			st.batch.Copies = st.batch.Copies[:0]
			s.score(sh, &part, out.Logits[0])
			it.Tokens, it.Pos = it.Tokens[n:], it.Pos+n
			did += n
			if total -= n; total*vocab <= most {
				break
			}
		}
		if did == 0 {
			return nil // one position of each is the minimum
		}
	}
	return nil
}

// score is for the tokens after the item's positions.
func (s *server) score(sh *share, it *infer.Item, logits []float32) {
	out := &s.step.out.Items[sh.out]
	vocab := s.inf.Config().Vocab
	for j := range it.Tokens {
		pos := it.Pos + j + 1
		if pos >= sh.seq.prompt {
			return
		}
		if len(out.Scores) == 0 {
			out.ScoresFrom = pos
		}
		out.Scores = append(out.Scores, sample.Score(logits[j*vocab:][:vocab], sh.seq.tokens[pos], sh.seq.spec.Top))
	}
}

func (s *server) finish(r infer.Result) {
	st := &s.step
	st.room()
	vocab, dim := s.inf.Config().Vocab, s.inf.Config().Dim
	each(len(st.shares), st.chosen()*vocab, func(i int) {
		sh := &st.shares[i]
		if sh.out < 0 && sh.seq.spec.Pool == "" {
			return
		}
		it := &st.batch.Items[i]
		if sh.seq.spec.Pool != "" {
			sh.seq.pool.add(r.Hidden[i], min(dim, len(r.Hidden[i])))
			if sh.item.Pool {
				st.out.Items[sh.out].Vector = sh.seq.pool.vector()
			}
			return
		}
		if sh.item.Score {
			s.score(sh, it, r.Logits[i])
		}
		if sh.item.Sample {
			n := len(r.Logits[i]) / vocab
			rows := st.own(i, r.Logits[i][max(0, n-1-len(sh.item.Draft))*vocab:])
			sh.seq.sample(sh.item, rows, vocab, &st.out.Items[sh.out])
		}
	})
}

func (st *step) room() {
	n := 0
	for i := range st.shares {
		if it := st.shares[i].item; it.Sample {
			n += 1 + len(it.Draft)
		}
	}
	for st.shared && len(st.copies) < len(st.shares) {
		st.copies = append(st.copies, nil)
	}
	if cap(st.choices) < n {
		st.choices = make([]sample.Choice, n)
	}
	at := 0
	for i := range st.shares {
		if sh := &st.shares[i]; sh.item.Sample {
			end := at + 1 + len(sh.item.Draft)
			st.out.Items[sh.out].Tokens = st.choices[at:at:end]
			at = end
		}
	}
}

// own's result may be changed: it is a copy if other processes read the logits.
func (st *step) own(i int, logits []float32) []float32 {
	if !st.shared {
		return logits
	}
	st.copies[i] = append(st.copies[i][:0], logits...)
	return st.copies[i]
}

func (st *step) chosen() (n int) {
	for i := range st.shares {
		if st.shares[i].item.Sample || st.shares[i].item.Score {
			n++
		}
	}
	return n
}

// sample chooses a token after each row of logits, until one differs from the draft.
func (q *sequence) sample(it *Item, rows []float32, vocab int, out *Out) {
	out.Logprobs = q.spec.Logprobs
	for j := range len(it.Draft) + 1 {
		c, err := q.sampler.Next(rows[j*vocab:][:vocab], q.tokens[:q.prompt], q.tokens[q.prompt:], len(q.tokens), it.Mask)
		if err != nil {
			out.Error = err.Error()
			return
		}
		q.tokens = append(q.tokens, c.Token)
		out.Tokens = append(out.Tokens, c)
		if j < len(it.Draft) && c.Token != it.Draft[j] {
			return
		}
	}
}
