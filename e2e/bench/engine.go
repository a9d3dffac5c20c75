// The benchmark engine measures the engine beside llama.cpp, on generated models. llama-bench is in the PATH or in
// -peer; make real NAME=llamacpp builds it.
//
//	go run ./e2e/bench engine -peer DIR -o docs/bench/engine.json
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/engine/bench"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/kernel"
)

type engineOptions struct {
	peer, models, rouse string
	selects             func(part string) bool
	reps                int
	small               bool
}

func runEngine() {
	var o engineOptions
	flag.StringVar(&o.peer, "peer", "", "folder of llama-bench (default: the PATH)")
	flag.StringVar(&o.models, "models", Models(), "folder for generated models")
	flag.StringVar(&o.rouse, "rouse", "bin/rouse", "the program")
	flag.IntVar(&o.reps, "reps", 5, "repetitions")
	report.Main(func(ctx context.Context, r *report.Run) error {
		o.selects, o.small = r.Selects, r.Small
		o.reps = report.Sized(o.small, o.reps, 1)
		if err := forward(ctx, o, r.Add); err != nil {
			return err
		}
		return r.Parts(ctx, report.Part{Name: "start", Measure: o.starts}, report.Part{Name: "sleep", Measure: o.sleeps})
	})
}

// subject is a model and its least ratios of speed to llama.cpp.
type subject struct {
	name string
	spec infertest.Spec
	// prefill, decode of one and of 16 sequences; 0: none
	pp, tg, tgb float64
}

var half = subject{name: "0.5B Q8_0", spec: infertest.Spec{Arch: "qwen2", Dim: 896, Layers: 24, Heads: 14, KVHeads: 2, FFN: 4864, Vocab: 151936, Context: 32768, Std: 0.02, Type: gguf.Q8_0}}

// The shapes are those of Llama-like models of 15 and 110 million parameters, of Qwen2 0.5B and of Qwen3 0.6B.
func subjects() []subject {
	prefill := 0.6
	if features, _ := kernel.Features(); features == "avx512" { // an unknown ROUSE_CPU is bench.Run's to complain about
		prefill = 1.5
	}
	s15 := infertest.Spec{Arch: "llama", Dim: 288, Layers: 6, Heads: 6, FFN: 768, Vocab: 32000, Context: 2048, Std: 0.02}
	s110 := infertest.Spec{Arch: "llama", Dim: 768, Layers: 12, Heads: 12, FFN: 2048, Vocab: 32000, Context: 2048, Std: 0.02}
	s600 := infertest.Spec{Arch: "qwen3", Dim: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072, Vocab: 151936, Context: 32768, Std: 0.02}
	of := func(s infertest.Spec, t gguf.Type) infertest.Spec { s.Type = t; return s }
	return []subject{
		{"15M Q8_0", of(s15, gguf.Q8_0), prefill, 0, 1.5},
		{"110M Q8_0", of(s110, gguf.Q8_0), prefill, 0.9, 1.5},
		{half.name, half.spec, prefill, 0.9, 1.5},
		{"0.6B Q4_K", of(s600, gguf.Q4_K), 0, 0.8, 0},
	}
}

func (s subject) model(o engineOptions) (string, error) {
	return Model(o.models, strings.ReplaceAll(strings.ToLower(s.name), " ", "-"), s.spec, o.small)
}

func forward(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	for _, s := range subjects() {
		if !o.selects("forward " + s.name) {
			continue
		}
		path, err := s.model(o)
		if err != nil {
			return err
		}
		cfg := bench.Config{Path: path, Reps: o.reps, Peer: o.peer, NoAsync: true}
		if o.small {
			cfg.Prompt, cfg.Gen = 8, 4
		} else if strings.HasPrefix(s.name, "0.") { // the peer would take minutes
			cfg.Prompt, cfg.Gen, cfg.Reps = 128, 24, min(o.reps, 3)
		}
		rep, err := bench.Run(ctx, cfg, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if rep.PeerNote != "" {
			fmt.Fprintln(os.Stderr, rep.PeerNote)
		}
		for _, x := range rep.Results {
			if !strings.HasSuffix(x.Test, "_llama.cpp") && !strings.HasSuffix(x.Test, "_ratio") {
				add(s.pass(rep, x))
			}
		}
	}
	return nil
}

func (s subject) pass(rep *bench.Report, x bench.Result) report.Measurement {
	m := report.Measurement{Name: s.name + " " + x.Test, What: fmt.Sprintf("forward passes with the kernels %s, %d threads", rep.CPU, rep.Threads), Unit: x.Unit}
	ours, theirs := rep.Series[x.Test], rep.Series[x.Test+"_llama.cpp"]
	if len(theirs) == 0 {
		return report.Of(m, ours...)
	}
	m.Against = "llama.cpp, the better of with and without flash attention"
	m = report.Compare(m, ours, theirs)
	least := s.pp
	if strings.Contains(x.Test, "xB") {
		least = s.tgb
	} else if strings.HasPrefix(x.Test, "tg") {
		least = s.tg
	}
	if least > 0 {
		m = m.Gated(m.Ratio >= least, "at least %gx of llama.cpp", least)
	}
	return m
}
