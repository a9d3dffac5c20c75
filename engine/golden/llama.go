package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/ollama/ollama/llama"
	"github.com/ollama/ollama/ml"
)

// oracle is a model opened by llama.cpp, with the fewest optimizations: one thread, F32 KV cache, no flash attention.
type oracle struct {
	model *llama.Model
	ctx   *llama.Context
	batch *llama.Batch
}

const contextSize = 512

func openOracle(path string, vocabOnly bool) (*oracle, error) {
	llama.BackendInit()
	model, err := llama.LoadModelFromFile(path, llama.ModelParams{UseMmap: true, VocabOnly: vocabOnly})
	if err != nil {
		return nil, err
	}
	o := &oracle{model: model}
	if vocabOnly {
		return o, nil
	}
	params := llama.NewContextParams(contextSize, contextSize, 1, 1, ml.FlashAttentionDisabled, "")
	floatCache(&params)
	if o.ctx, err = llama.NewContextWithModel(model, params); err != nil {
		return nil, err
	}
	o.batch, err = llama.NewBatch(contextSize, 1, 0)
	return o, err
}

func (o *oracle) close() {
	if o.ctx != nil {
		o.batch.Free()
	}
	llama.FreeModel(o.model)
}

// floatCache sets the KV cache's type to F32 (0 in ggml's numbering): the Go binding offers only F16 and smaller, and
// keeps the parameters in an unexported C struct.
func floatCache(p *llama.ContextParams) {
	c := reflect.ValueOf(p).Elem().FieldByName("c")
	for _, name := range []string{"type_k", "type_v"} {
		f := c.FieldByName(name)
		reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().SetUint(0)
	}
}

// step computes the logits after tokens, of which the first stands at pos.
func (o *oracle) step(tokens []int32, pos int) ([]float32, error) {
	o.batch.Clear()
	for i, t := range tokens {
		o.batch.Add(int(t), nil, pos+i, i == len(tokens)-1, 0)
	}
	if err := o.ctx.Decode(o.batch); err != nil {
		return nil, err
	}
	return o.ctx.GetLogitsIth(len(tokens) - 1), nil
}

// run computes the logits after ids and a greedy continuation of n tokens, or up to the end token if stop is set. Steps
// whose two best tokens are closer than near are ties.
func (o *oracle) run(ids []int32, n int, stop bool, near float32) (run, error) {
	o.ctx.KvCacheClear()
	logits, err := o.step(ids, 0)
	if err != nil {
		return run{}, fmt.Errorf("prompt of %d tokens: %w", len(ids), err)
	}
	r := run{IDs: ids, Logits: encodeFloats(logits), first: slices.Clone(logits)}
	for pos := len(ids); len(r.Greedy) < n; pos++ {
		first, second := best(logits)
		r.Greedy = append(r.Greedy, first.id)
		if gap := first.logit - second.logit; gap < near {
			r.Ties = append(r.Ties, tie{Step: len(r.Greedy) - 1, First: first.id, Second: second.id, FirstLogit: first.logit, SecondLogit: second.logit})
		}
		if stop && o.model.TokenIsEog(int(first.id)) {
			break
		}
		if logits, err = o.step([]int32{first.id}, pos); err != nil {
			return run{}, fmt.Errorf("token %d: %w", pos, err)
		}
	}
	for _, id := range r.Greedy {
		if !o.model.TokenIsEog(int(id)) {
			r.Text += o.model.TokenToPiece(int(id))
		}
	}
	return r, nil
}

type scored struct {
	id    int32
	logit float32
}

// best returns the two highest logits; of equals the lower id is first.
func best(logits []float32) (first, second scored) {
	all := make([]scored, len(logits))
	for i, l := range logits {
		all[i] = scored{int32(i), l}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.logit, a.logit) })
	return all[0], all[1]
}

func (o *oracle) tokenize(text string, special bool) ([]int32, error) {
	ids, err := o.model.Tokenize(text, false, special)
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, err
}
