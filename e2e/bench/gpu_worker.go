package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

type gpuSubject struct {
	*engine.Engine
	model model.Config
	said  *words
	stop  func() error
}

func (b *gpuBench) open(ctx context.Context, load worker.Load, cfg engine.Config, options map[string]any) (*gpuSubject, error) {
	all := map[string]any{"device": b.device}
	maps.Copy(all, options)
	raw, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	load.Options = raw
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.FromGGUF(f) // its tokens are all that is asked for
	if err != nil {
		return nil, err
	}
	s := &gpuSubject{said: newWords()}
	w := worker.Open(worker.Options{Device: worker.CUDA, Python: b.python, Load: load, Log: slog.New(slog.NewTextHandler(s.said, nil))})
	info, err := w.Start(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the worker: %w: %s", err, lastLine(s.said.log())), w.Close())
	}
	s.model = info.Model
	if s.Engine, err = engine.Over(w, info, tok, cfg); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(running) }()
	s.stop = func() error {
		cancel()
		return <-done
	}
	return s, nil
}

func (s *gpuSubject) attention() string {
	for line := range strings.Lines(s.said.log()) {
		if i := strings.Index(line, "attention"); i >= 0 {
			return strings.Trim(strings.TrimSpace(line[strings.LastIndexByte(line[:i], '=')+1:]), `"`)
		}
	}
	return "unknown"
}

// weightsOf is how many bytes a step reads of a dense model's weights.
func weightsOf(m model.Config, width float64) float64 {
	q, kv := float64(m.Heads*m.HeadDim), float64(m.KVHeads*m.HeadDim)
	dim := float64(m.Dim)
	layer := dim*(2*q+2*kv) + 3*dim*float64(m.FFN)
	return width * (float64(m.Layers)*layer + float64(m.Vocab)*dim)
}

func keysOf(m model.Config, width float64) float64 {
	return 2 * width * float64(m.Layers*m.KVHeads*m.HeadDim)
}

func (b *gpuBench) width() float64 {
	if b.device == "cpu" {
		return 4
	}
	return 2
}
