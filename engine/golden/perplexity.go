package main

import (
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

// document is a held-out chat with its answer, and the sum of -ln p of its tokens except the first.
type document struct {
	IDs []int32 `json:"ids"`
	NLL float64 `json:"nll"`
}

// makePerplexity computes how well the shipped model predicts held-out chats.
func makePerplexity(model, out string) error {
	sum, err := fileSum(model)
	if err != nil {
		return err
	}
	o, err := openOracle(model, false)
	if err != nil {
		return err
	}
	defer o.close()
	var docs []any
	var total float64
	n := 0
	for _, skill := range corpus.Skills {
		for _, q := range corpus.Questions(skill, 2026, 5) {
			ids, err := o.tokenize(corpus.ChatML(q.Messages)+q.Answer+"<|im_end|>", true)
			if err != nil {
				return err
			}
			d := document{IDs: ids}
			if d.NLL, err = o.nll(ids); err != nil {
				return err
			}
			total, n = total+d.NLL, n+len(ids)-1
			docs = append(docs, d)
		}
	}
	perplexity := math.Exp(total / float64(n))
	fmt.Printf("%d documents, %d tokens, perplexity %.5f\n", len(docs), n, perplexity)
	head := map[string]any{"sha256": sum, "perplexity": perplexity}
	return writeJSON(out, head, map[string][]any{"documents": docs})
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
