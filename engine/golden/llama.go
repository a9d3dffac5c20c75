package main

import (
	"cmp"
	"fmt"
	"math"
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

// tie is a step of a continuation whose two best tokens are close together.
type tie struct {
	Step        int     `json:"step"`
	First       int32   `json:"first"`
	Second      int32   `json:"second"`
	FirstLogit  float32 `json:"firstLogit"`
	SecondLogit float32 `json:"secondLogit"`
}

// greedy continues r.IDs by n tokens, or up to the end token if stop is set, and returns the logits after r.IDs. Steps
// whose two best tokens are closer than near are ties.
func (o *oracle) greedy(r *run, n int, stop bool, near float32) ([]float32, error) {
	o.ctx.KvCacheClear()
	r.Greedy, r.Text, r.Ties = nil, "", nil
	logits, err := o.step(r.IDs, 0)
	if err != nil {
		return nil, fmt.Errorf("prompt of %d tokens: %w", len(r.IDs), err)
	}
	after := slices.Clone(logits)
	for pos := len(r.IDs); len(r.Greedy) < n; pos++ {
		best := highest(logits)
		first, second := best[0], best[1]
		if first.Logit-second.Logit < near {
			r.Ties = append(r.Ties, tie{len(r.Greedy), first.ID, second.ID, first.Logit, second.Logit})
		}
		r.Greedy = append(r.Greedy, first.ID)
		end := o.model.TokenIsEog(int(first.ID))
		if !end {
			r.Text += o.model.TokenToPiece(int(first.ID))
		}
		if end && stop {
			break
		}
		if logits, err = o.step([]int32{first.ID}, pos); err != nil {
			return nil, fmt.Errorf("token %d: %w", pos, err)
		}
	}
	return after, nil
}

// scored is a token's logit.
type scored struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// highest returns the tokens by their logits, the highest first; of equals the lower id is first.
func highest(logits []float32) []scored {
	all := make([]scored, len(logits))
	for i, l := range logits {
		all[i] = scored{int32(i), l}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.Logit, a.Logit) })
	return all
}

// nll returns the sum of -ln p of ids except the first.
func (o *oracle) nll(ids []int32) (float64, error) {
	o.ctx.KvCacheClear()
	o.batch.Clear()
	for i, t := range ids {
		o.batch.Add(int(t), nil, i, true, 0)
	}
	if err := o.ctx.Decode(o.batch); err != nil {
		return 0, err
	}
	var sum float64
	for i, next := range ids[1:] {
		logits := o.ctx.GetLogitsIth(i)
		var z float64
		for _, l := range logits {
			z += math.Exp(float64(l - logits[next]))
		}
		sum += math.Log(z)
	}
	return sum, nil
}

func (o *oracle) tokenize(text string, special bool) ([]int32, error) {
	ids, err := o.model.Tokenize(text, false, special)
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, err
}
