package main

import (
	"cmp"
	"slices"
)

// namedTexts are the prompts for a public model without instructions. The last is long enough for a window of attention.
var namedTexts = []string{
	"The capital of France is",
	"Once upon a time there was a",
	"def fibonacci(n):\n    if n < 2:\n        return n\n",
	"1, 2, 3, 4, 5, 6, 7,",
	"Die Hauptstadt von Österreich heißt",
	"Привет! Как тебя",
	"{\"name\": \"bob\", \"age\": 7, \"city\": \"",
	"A server holds each request that comes while its model sleeps. It wakes the model, waits until the model has loaded its weights, and then " +
		"sends the requests in the order in which they came. A client that leaves in the meantime takes its request with it. When no request has " +
		"come for some time the model is put to sleep, and its memory goes to another one. This is called scaling to zero, and it is what",
}

// bestLogits is the number of the highest logits that are kept: all of a large vocabulary would be a megabyte.
const bestLogits = 32

// score is a token's logit.
type score struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// namedRun is a text's tokens, the sum of -ln p of all but the first, the best logits after them and the continuation.
type namedRun struct {
	Prompt string  `json:"prompt"`
	IDs    []int32 `json:"ids"`
	NLL    float64 `json:"nll"`
	Best   []score `json:"best"`
	Greedy []int32 `json:"greedy"`
}

// makeNamed computes all texts.
func makeNamed(model, out string) error {
	sum, err := fileSum(model)
	if err != nil {
		return err
	}
	o, err := openOracle(model, false)
	if err != nil {
		return err
	}
	defer o.close()
	var runs []any
	for _, text := range namedTexts {
		ids, err := o.tokenize("<bos>"+text, true)
		if err != nil {
			return err
		}
		n := namedRun{Prompt: text, IDs: ids}
		if n.NLL, err = o.nll(ids); err != nil {
			return err
		}
		r, err := o.run(ids, 12, false, nearTie)
		if err != nil {
			return err
		}
		n.Greedy, n.Best = r.Greedy, highest(r.first, bestLogits)
		runs = append(runs, n)
	}
	return writeJSON(out, map[string]any{"sha256": sum}, map[string][]any{"runs": runs})
}

// highest returns the n highest logits, the highest first.
func highest(logits []float32, n int) []score {
	all := make([]score, len(logits))
	for i, l := range logits {
		all[i] = score{int32(i), l}
	}
	slices.SortStableFunc(all, func(a, b score) int { return cmp.Compare(b.Logit, a.Logit) })
	return all[:n]
}
