package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

var _ infer.Inferencer = (*Runner)(nil)

// Runner computes a model's logits on the processor. It implements infer.Inferencer.
type Runner struct {
	path string // "" when the file was given
	cfg  Config
	conf model.Config

	// mu is held by Forward, Sleep, Wake, Close and MemoryBytes, from start to end.
	mu     sync.Mutex
	file   *gguf.File
	model  *model.Model // nil while asleep at level 2
	cache  *cache
	level  int // 0 awake, 1 or 2 asleep
	closed bool
	team   team
	step   *step        // working memory, nil while asleep
	out    infer.Result // what Forward returned last
}

// Open loads the model file at path. The error says what is wrong with the file or the
// configuration; nothing is left open then.
func Open(path string, cfg Config) (*Runner, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := New(f, cfg)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("model file %s: %w", path, err)
	}
	r.path = path
	return r, nil
}

// New uses a model that is already open, such as one in the program itself. The Runner
// takes f over and closes it in Close; on error f stays the caller's. Sleep at level 2 cannot let
// go of such a file and does what level 1 does.
func New(f *gguf.File, cfg Config) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := model.Load(f)
	if err != nil {
		return nil, err
	}
	if err := supported(m); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r := &Runner{cfg: cfg, conf: m.Config, file: f, model: m}
	if cfg.Context > 0 {
		r.conf.Context = min(r.conf.Context, cfg.Context)
	}
	r.team.size = cfg.Threads
	if r.cache, err = newCache(r.conf, cfg); err != nil {
		return nil, err
	}
	if err := r.cache.open(); err != nil {
		return nil, err
	}
	r.step = newStep(r)
	return r, nil
}

// Config implements infer.Inferencer.
func (r *Runner) Config() model.Config { return r.conf }

// Blocks implements infer.Inferencer.
func (r *Runner) Blocks() (count, size int) { return r.cache.count, r.cache.size }

// MemoryBytes implements infer.Inferencer.
func (r *Runner) MemoryBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.level > 0 {
		return 0
	}
	return r.model.Bytes() + int64(r.cache.used)*r.cache.blockBytes() + r.step.bytes()
}

// Sleep implements infer.Inferencer.
func (r *Runner) Sleep(level int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.ErrClosed
	case level != 1 && level != 2:
		return fmt.Errorf("sleep level %d is unknown: want 1 or 2", level)
	case level <= r.level:
		return nil
	}
	err := r.rest()
	if level == 2 && r.path != "" {
		r.model = nil
		if e := r.file.Close(); err == nil {
			err = e
		}
	} else if e := r.file.Release(); err == nil {
		err = e
	}
	r.level = level
	if err != nil {
		return fmt.Errorf("sleep: %w", err)
	}
	return nil
}

// rest gives back everything but the model file.
func (r *Runner) rest() error {
	r.team.stop()
	r.step, r.out = nil, infer.Result{}
	return r.cache.close()
}

// Wake implements infer.Inferencer.
func (r *Runner) Wake(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.ErrClosed
	case r.level == 0:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wake: %w", context.Cause(ctx))
	}
	if r.model == nil {
		if err := r.reopen(); err != nil {
			return fmt.Errorf("wake: %w", err)
		}
	}
	if err := r.cache.open(); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	r.step = newStep(r)
	r.level = 0
	return nil
}

// reopen maps the file again after level 2.
func (r *Runner) reopen() error {
	f, err := gguf.Open(r.path)
	if err != nil {
		return err
	}
	m, err := model.Load(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("model file %s: %w", r.path, err)
	}
	want := r.conf
	want.Context = m.Config.Context // ours may have been lowered
	if m.Config != want || m.Config.Context < r.conf.Context {
		f.Close()
		return fmt.Errorf("model file %s holds another model than before: restart to use it", r.path)
	}
	r.file, r.model = f, m
	return nil
}

// Close implements infer.Inferencer.
func (r *Runner) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.rest()
	if e := r.file.Close(); err == nil { // a second Close of a file does nothing
		err = e
	}
	r.model = nil
	return err
}

// Forward implements infer.Inferencer.
func (r *Runner) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.Result{}, infer.ErrClosed
	case r.level > 0:
		return infer.Result{}, infer.ErrAsleep
	}
	if err := r.check(b); err != nil {
		return infer.Result{}, err
	}
	for _, p := range b.Copies {
		r.cache.copy(p)
	}
	r.prepare(b)
	s := r.step
	s.begin()
	for i := range b.Items {
		it := &b.Items[i]
		for j := range it.Tokens {
			s.add(it, j)
			if len(s.tokens) < maxStep {
				continue
			}
			if err := s.compute(ctx); err != nil {
				return infer.Result{}, err
			}
			s.begin()
		}
	}
	if err := s.compute(ctx); err != nil {
		return infer.Result{}, err
	}
	return r.out, nil
}

func (r *Runner) check(b *infer.Batch) error {
	if err := b.Check(r.conf, r.cache.count, r.cache.size); err != nil {
		return err
	}
	for i := range b.Items {
		if id := b.Items[i].Adapter; id != 0 {
			return fmt.Errorf("batch item %d: adapter %d: %w", i, id, infer.ErrNoAdapter)
		}
	}
	return nil
}

// LoadAdapter implements infer.Inferencer. It refuses every adapter.
func (r *Runner) LoadAdapter(int32, *lora.Adapter) error {
	return errors.New("this inferencer computes no adapters")
}

// UnloadAdapter implements infer.Inferencer.
func (r *Runner) UnloadAdapter(id int32) error {
	return fmt.Errorf("unload adapter %d: %w", id, infer.ErrNoAdapter)
}

// prepare makes room for what the Items want.
func (r *Runner) prepare(b *infer.Batch) {
	logits, hidden := 0, 0
	rows := func(it *infer.Item) (l, h int) {
		switch it.Want {
		case infer.Last:
			return r.conf.Vocab, 0
		case infer.All:
			return len(it.Tokens) * r.conf.Vocab, 0
		case infer.Hidden:
			return 0, len(it.Tokens) * r.conf.Dim
		}
		return 0, 0
	}
	for i := range b.Items {
		l, h := rows(&b.Items[i])
		logits, hidden = logits+l, hidden+h
	}
	s := r.step
	s.logits, s.hidden = resize(s.logits, logits), resize(s.hidden, hidden)
	r.out = infer.Result{Logits: r.out.Logits[:0], Hidden: r.out.Hidden[:0]}
	logits, hidden = 0, 0
	for i := range b.Items {
		l, h := rows(&b.Items[i])
		r.out.Logits = append(r.out.Logits, part(s.logits, logits, l))
		r.out.Hidden = append(r.out.Hidden, part(s.hidden, hidden, h))
		logits, hidden = logits+l, hidden+h
	}
	s.sent, s.sentHidden = 0, 0
}

// part is n values from at on, nil for none.
func part(x []float32, at, n int) []float32 {
	if n == 0 {
		return nil
	}
	return x[at : at+n : at+n]
}

// resize gives a slice of n values, its memory reused when large enough. Old contents are
// of no use.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
