package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/worker"
)

func (b *gpuBench) naps(ctx context.Context, p *gpuPart) error {
	if err := b.torch(); err != nil {
		return err
	}
	for _, size := range b.sizes {
		if why := b.tooLarge(size); why != "" {
			p.note("level 1 of %s: left out, %s", gigabytes(size), why)
			continue
		}
		for _, pinned := range []bool{false, true} {
			if pinned && b.device == "cpu" {
				p.note("nothing is pinned without a CUDA device: what is named so is the same code, not pinned")
			}
			if pinned && b.facts.Unpinned != "" {
				p.note("level 1 of %s, pinned: left out, %s", gigabytes(size), b.facts.Unpinned)
				continue
			}
			if err := p.goOn(ctx, b.napsAt1(ctx, p, size, pinned)); err != nil {
				return err
			}
		}
	}
	return p.goOn(ctx, b.napsAt2(ctx, p))
}

// tooLarge says why size bytes can't be measured. The host holds weights asleep, and torch rounds what it pins up to
// powers of two.
func (b *gpuBench) tooLarge(size float64) string {
	switch {
	case b.small:
		return ""
	case 1.1*size > float64(b.facts.Free):
		return fmt.Sprintf("the device has %s", gigabytes(float64(b.facts.Free)))
	case 1.6*size > float64(b.facts.HostFree):
		return fmt.Sprintf("the host has %s, and it takes 1.6 times the weights", gigabytes(float64(b.facts.HostFree)))
	}
	return ""
}

func gigabytes(n float64) string { return fmt.Sprintf("%.3g GB", n/1e9) }

// gpuNap returns the seconds of a sleep and of a wake, which ends with a token.
func gpuNap(ctx context.Context, s *gpuSubject, level int) (sleep, wake float64, err error) {
	began := time.Now()
	if err := s.Sleep(ctx, level, engine.SleepRefuse); err != nil {
		return 0, 0, err
	}
	sleep = time.Since(began).Seconds()
	began = time.Now()
	_, err = s.Wake(ctx)
	return sleep, time.Since(began).Seconds(), err
}

func (b *gpuBench) napsAt1(ctx context.Context, p *gpuPart, size float64, pinned bool) (err error) {
	s, err := b.open(ctx, worker.Load{Model: fmt.Sprintf("random:%g", size), Sequences: 1, Context: 256, Threads: 1}, engine.Config{Seats: 1}, map[string]any{"pin": pinned})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	how, toHost, toDevice := "not pinned", b.facts.Rates.ToHost, b.facts.Rates.ToDevice
	if pinned {
		how = "pinned"
		if b.device == "cuda" {
			toHost, toDevice = b.facts.Rates.ToHostPinned, b.facts.Rates.ToDevicePinned
		}
	}
	total := weightsOf(s.model, b.width())
	for _, time := range []string{"first", "second", "third"} {
		sleep, wake, err := gpuNap(ctx, s, 1)
		if err != nil {
			return fmt.Errorf("level 1 of %s, %s, %s: %w", gigabytes(size), how, time, err)
		}
		p.beside(fmt.Sprintf("level 1 of %s, %s: %s sleep", gigabytes(size), how, time), "s", sleep, total/toHost, "by the bus")
		p.beside(fmt.Sprintf("level 1 of %s, %s: %s wake", gigabytes(size), how, time), "s", wake, total/toDevice, "by the bus")
	}
	return nil
}

func (b *gpuBench) napsAt2(ctx context.Context, p *gpuPart) (err error) {
	if b.fileWeights == 0 {
		p.note("level 2: left out, --file-weights is 0")
		return nil
	}
	if why := b.tooLarge(b.fileWeights); why != "" {
		p.note("level 2 of %s: left out, %s", gigabytes(b.fileWeights), why)
		return nil
	}
	path, err := b.modelFile(b.fileWeights)
	if err != nil {
		return err
	}
	s, err := b.open(ctx, worker.Load{Model: path, Sequences: 1, Context: 256, Threads: 1}, engine.Config{Seats: 1}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	total := weightsOf(s.model, b.width())
	for _, time := range []string{"first", "second"} {
		sleep, wake, err := gpuNap(ctx, s, 2)
		if err != nil {
			return fmt.Errorf("level 2 of %s, %s: %w", gigabytes(b.fileWeights), time, err)
		}
		p.add(fmt.Sprintf("level 2 of %s: %s sleep", gigabytes(b.fileWeights), time), "s", sleep)
		p.beside(fmt.Sprintf("level 2 of %s: %s wake, from a file in the page cache", gigabytes(b.fileWeights), time), "s", wake, total/b.facts.Rates.ToDevice, "by the bus")
	}
	return nil
}

func (b *gpuBench) modelFile(size float64) (string, error) {
	s := shapeOf(size, 32000)
	path := filepath.Join(b.models, fmt.Sprintf("qwen3-bf16-%d-layers-of-%d.gguf", s.Layers, s.Dim))
	if err := b.makeRoom(path, size); err != nil {
		return "", err
	}
	return path, infertest.Ensure(path, s)
}

// makeRoom makes the folder of path, unless the file is there, and fails where size bytes have no room.
func (b *gpuBench) makeRoom(path string, size float64) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(b.models, &fs); err == nil && float64(fs.Bavail)*float64(fs.Bsize) < 1.2*size {
		return lacks("%s has no room for a model of %s", b.models, gigabytes(size))
	}
	return nil
}

// shapeOf is a dense qwen3 model of about so many bytes in BF16.
func shapeOf(weights float64, vocab int) infertest.Spec {
	s := infertest.Spec{Arch: "qwen3", Dim: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 12288, Vocab: vocab, Context: 4096, Std: 0.02, Type: gguf.BF16}
	if weights < 1e9 {
		s.Dim, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.Vocab = 256, 8, 2, 32, 768, min(vocab, 2048)
	}
	each := float64(s.Dim*(2*s.Heads*s.HeadDim+2*s.KVHeads*s.HeadDim) + 3*s.FFN*s.Dim)
	s.Layers = max(1, int((weights/2-float64(s.Vocab*s.Dim))/each))
	return s
}
