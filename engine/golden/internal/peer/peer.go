// Package peer runs the llama.cpp that is vendored in Ollama as a benchmark: prompts and continuations of random tokens, like
// llama.cpp's own llama-bench and llama-batched-bench, which Ollama does not vendor.
package peer

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ollama/ollama/llama"
	"github.com/ollama/ollama/ml"
)

// Runner is a model in a context.
type Runner struct {
	model *llama.Model
	ctx   *llama.Context
	rng   *rand.Rand
}

// Load opens a model file; context is the number of positions of all sequences together.
func Load(path string) (*llama.Model, error) {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // llama.cpp's log follows the default logger's level
	llama.BackendInit()
	return llama.LoadModelFromFile(path, llama.ModelParams{UseMmap: true})
}

// New makes a context with an F16 cache.
func New(model *llama.Model, context, sequences, threads int, flash bool) (*Runner, error) {
	attention := ml.FlashAttentionDisabled
	if flash {
		attention = ml.FlashAttentionEnabled
	}
	ctx, err := llama.NewContextWithModel(model, llama.NewContextParams(context, min(context, 2048), sequences, threads, attention, ""))
	if err != nil {
		return nil, err
	}
	return &Runner{model: model, ctx: ctx, rng: rand.New(rand.NewPCG(1, 2))}, nil
}

func (r *Runner) token() int { return r.rng.IntN(r.model.NumVocab()) }

// Prompt computes n tokens of each sequence, one sequence after the other, and returns the time.
func (r *Runner) Prompt(n, sequences int) (time.Duration, error) {
	r.ctx.KvCacheClear()
	batch, err := llama.NewBatch(min(n, 512), 1, 0)
	if err != nil {
		return 0, err
	}
	defer batch.Free()
	start := time.Now()
	for s := range sequences {
		for at := 0; at < n; {
			batch.Clear()
			for range min(n-at, 512) {
				batch.Add(r.token(), nil, at, at == n-1, s)
				at++
			}
			if err := r.ctx.Decode(batch); err != nil {
				return 0, fmt.Errorf("prompt of %d tokens: %w", n, err)
			}
		}
	}
	r.ctx.Synchronize()
	return time.Since(start), nil
}

// Generate computes n further tokens of each sequence from position at, all sequences in one batch.
func (r *Runner) Generate(at, n, sequences int) (time.Duration, error) {
	batch, err := llama.NewBatch(sequences, 1, 0)
	if err != nil {
		return 0, err
	}
	defer batch.Free()
	start := time.Now()
	for i := range n {
		batch.Clear()
		for s := range sequences {
			batch.Add(r.token(), nil, at+i, true, s)
		}
		if err := r.ctx.Decode(batch); err != nil {
			return 0, fmt.Errorf("token %d: %w", at+i, err)
		}
		r.ctx.Synchronize()
	}
	return time.Since(start), nil
}

// Clear empties the cache.
func (r *Runner) Clear() { r.ctx.KvCacheClear() }

// Stats returns mean and standard deviation.
func Stats(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	if len(x) < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}
