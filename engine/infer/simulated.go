package infer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine/model"
)

var _ Inferencer = (*Simulated)(nil)

// SimulatedConfig configures a device. Zero fields get the defaults.
type SimulatedConfig struct {
	// Step is the time of a step, and Token what each token adds; default 0.
	Step  time.Duration `json:"step_ns,omitempty"`
	Token time.Duration `json:"token_ns,omitempty"`
	// Spin makes step times accurate to the microsecond, by a busy wait of up to half a millisecond.
	Spin bool `json:"spin,omitempty"`
	// Vocab is the number of tokens; default 512.
	Vocab int `json:"vocab,omitempty"`
	// Context is the longest sequence; default 8192.
	Context int `json:"context,omitempty"`
	// Blocks and BlockSize are the cache's geometry; default 4096 blocks of 16.
	Blocks    int `json:"blocks,omitempty"`
	BlockSize int `json:"block_size,omitempty"`
	// End, if not 0, is a token whose frequency EndEvery sets: usually the end token.
	End int32 `json:"end,omitempty"`
	// EndEvery makes one in so many tokens the End token. 0: never.
	EndEvery int `json:"end_every,omitempty"`
}

func (c SimulatedConfig) withDefaults() SimulatedConfig {
	for _, f := range []struct {
		v *int
		d int
	}{{&c.Vocab, 512}, {&c.Context, 8192}, {&c.Blocks, 4096}, {&c.BlockSize, 16}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	return c
}

// Validate returns an error if a field is out of range.
func (c SimulatedConfig) Validate() error {
	const most = 1 << 24
	for _, f := range []struct {
		name string
		v    int
	}{{"vocab", c.Vocab}, {"context", c.Context}, {"blocks", c.Blocks}, {"block_size", c.BlockSize}, {"end_every", c.EndEvery}} {
		if f.v < 0 || f.v > most {
			return fmt.Errorf("simulated device: %s is %d, want 0 for the default or up to %d", f.name, f.v, most)
		}
	}
	if c.Step < 0 || c.Token < 0 || c.End < 0 {
		return fmt.Errorf("simulated device: a step of %v, a token of %v, the end token %d: want none of them negative", c.Step, c.Token, c.End)
	}
	if vocab := c.withDefaults().Vocab; int(c.End) >= vocab {
		return fmt.Errorf("simulated device: the end token is %d, want one of the vocabulary of %d", c.End, vocab)
	}
	return nil
}

// Simulated is a device whose steps take a set time and almost no computation, to measure the engine's own overhead.
// Instead of keys and values it stores a hash of all tokens up to each position, so an engine that confuses blocks
// gets other tokens.
type Simulated struct {
	cfg SimulatedConfig

	State[uint64] // a hash of the tokens up to each position, 0 if unwritten

	out    Result
	memory []float32
}

// NewSimulated returns a device.
func NewSimulated(c SimulatedConfig) (*Simulated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Simulated{cfg: c.withDefaults()}, nil
}

// ParseSimulated returns a device for the JSON of a SimulatedConfig, which may be empty.
func ParseSimulated(options []byte) (*Simulated, error) {
	var c SimulatedConfig
	if len(options) > 0 {
		d := json.NewDecoder(bytes.NewReader(options))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return nil, fmt.Errorf("simulated device: its options: %w", err)
		}
	}
	return NewSimulated(c)
}

// Forward implements [Inferencer].
func (d *Simulated) Forward(ctx context.Context, b *Batch) (Result, error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	began := time.Now()
	if err := d.Ready(); err != nil {
		return Result{}, err
	}
	if err := b.Check(d.Config(), d.cfg.Blocks, d.cfg.BlockSize); err != nil {
		return Result{}, err
	}
	if err := d.compute(b); err != nil {
		return Result{}, err
	}
	tokens := 0
	for i := range b.Items {
		tokens += len(b.Items[i].Tokens)
	}
	if err := d.wait(ctx, began.Add(d.cfg.Step+time.Duration(tokens)*d.cfg.Token)); err != nil {
		return Result{}, err
	}
	return d.out, nil
}

func (d *Simulated) wait(ctx context.Context, until time.Time) error {
	left := time.Until(until)
	if d.cfg.Spin {
		left -= 500 * time.Microsecond
	}
	if left > 0 {
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("forward pass: %w", context.Cause(ctx))
	}
	for d.cfg.Spin && time.Now().Before(until) {
		runtime.Gosched()
	}
	return nil
}

func (d *Simulated) compute(b *Batch) error {
	if d.Cache == nil {
		d.Cache = make([]uint64, d.cfg.Blocks*d.cfg.BlockSize)
	}
	for _, c := range b.Copies {
		n := d.cfg.BlockSize
		copy(d.Cache[int(c.To)*n:][:n], d.Cache[int(c.From)*n:][:n])
	}
	d.out.Logits, d.out.Hidden, d.memory = d.out.Logits[:0], d.out.Hidden[:0], d.memory[:0]
	for i := range b.Items {
		it := &b.Items[i]
		h := uint64(14695981039346656037)
		if it.Adapter != 0 {
			a := d.Adapters[it.Adapter]
			if a == nil {
				return fmt.Errorf("batch item %d: adapter %d: %w", i, it.Adapter, ErrNoAdapter)
			}
			for _, c := range []byte(a.Name) {
				h = (h ^ uint64(c)) * 1099511628211
			}
		}
		if it.Pos > 0 {
			if h = *d.cell(it, it.Pos-1); h == 0 {
				return fmt.Errorf("batch item %d: position %d was never computed", i, it.Pos-1)
			}
		}
		var hidden []float32
		at := len(d.memory)
		for j, t := range it.Tokens {
			h = (h ^ uint64(t+1)) * 1099511628211
			*d.cell(it, it.Pos+j) = h
			switch {
			case it.Want == All || it.Want == Last && j == len(it.Tokens)-1:
				d.answer(h)
			case it.Want == Hidden:
				hidden = append(hidden, float32(h>>40))
			}
		}
		var logits []float32
		if len(d.memory) > at {
			logits = d.memory[at:len(d.memory):len(d.memory)]
		}
		d.out.Logits, d.out.Hidden = append(d.out.Logits, logits), append(d.out.Hidden, hidden)
	}
	return nil
}

func (d *Simulated) cell(it *Item, pos int) *uint64 {
	n := d.cfg.BlockSize
	return &d.Cache[int(it.Blocks[pos/n])*n+pos%n]
}

// answer appends a row of logits to memory: 0 except for the next token.
func (d *Simulated) answer(h uint64) {
	n := len(d.memory)
	d.memory = slices.Grow(d.memory, d.cfg.Vocab)[:n+d.cfg.Vocab]
	row := d.memory[n:]
	clear(row)
	x := h ^ h>>29
	next := int32(x % uint64(d.cfg.Vocab))
	if d.cfg.EndEvery > 0 && x>>32%uint64(d.cfg.EndEvery) == 0 {
		next = d.cfg.End
	} else if next == d.cfg.End && d.cfg.End != 0 {
		next--
	}
	row[next] = 10
}

// Config implements [Inferencer].
func (d *Simulated) Config() model.Config {
	return model.Config{Arch: "sim", Name: "simulated device", Vocab: d.cfg.Vocab, Context: d.cfg.Context, Dim: 1}
}

// Blocks implements [Inferencer].
func (d *Simulated) Blocks() (count, size int) { return d.cfg.Blocks, d.cfg.BlockSize }

// MemoryBytes implements [Inferencer].
func (d *Simulated) MemoryBytes() int64 {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	return int64(len(d.Cache)) * 8
}
