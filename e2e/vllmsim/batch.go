package vllmsim

import (
	"slices"
	"time"
)

// Timing is how long things take.
type Timing struct {
	// of a token of a prompt that is not in the cache
	Prefill time.Duration
	// of every step, and of each sequence that decodes in it
	Step, Sequence time.Duration
}

// BatchConfig is the size of an engine. Every number must be above 0 but Adapters.
type BatchConfig struct {
	Sequences           int
	BlockTokens, Blocks int
	// in one batch; 0: any number
	Adapters int
	Events   bool
	Timing   Timing
}

// Sequence is one text in the making. The caller fills the first group.
type Sequence struct {
	Adapter string
	// the prompt, whose length is Prompt, and then the output
	Tokens []Token
	Prompt int

	// tokens of the output so far
	Generated int
	// Cached tokens of the prompt were in the cache, Stale of them computed with weights that are gone.
	Cached, Stale int

	running  bool
	computed int // tokens whose KV entries exist
	planned  int // to be computed in this step
	blocks   []int
	hashes   []uint64 // of the full blocks of Tokens, as far as they are known
}

// Done reports whether the output is complete.
func (s *Sequence) Done() bool { return s.Prompt+s.Generated >= len(s.Tokens) }

// Running reports whether it is in the batch.
func (s *Sequence) Running() bool { return s.running }

// Batch is the scheduler.
type Batch struct {
	cfg     BatchConfig
	pool    *pool
	waiting []*Sequence
	running []*Sequence
	counts  Counts
}

// Counts are totals since the start.
type Counts struct {
	// tokens of prompts that the prefix cache was asked for and had
	Queries, Hits int
	// hits on blocks that were computed with weights that are gone
	Stale int
}

// NewBatch makes an idle scheduler.
func NewBatch(cfg BatchConfig) *Batch {
	b := &Batch{cfg: cfg, pool: newPool(cfg.Blocks)}
	b.pool.noting = cfg.Events
	return b
}

// Add queues a sequence. It returns false if its tokens need more blocks than there are.
func (b *Batch) Add(s *Sequence) bool {
	if len(s.Tokens) == 0 || b.blocksOf(len(s.Tokens)) > b.cfg.Blocks {
		return false
	}
	b.waiting = append(b.waiting, s)
	return true
}

// Remove takes a sequence out. Its blocks stay in the prefix cache.
func (b *Batch) Remove(s *Sequence) {
	same := func(o *Sequence) bool { return o == s }
	b.waiting = slices.DeleteFunc(b.waiting, same)
	b.running = slices.DeleteFunc(b.running, same)
	b.release(s)
}

func (b *Batch) release(s *Sequence) {
	s.running = false
	for _, block := range slices.Backward(s.blocks) { // the end of a prefix is evicted before its beginning
		b.pool.release(block)
	}
	s.blocks = nil
}

// Load is the waiting and the running work.
type Load struct {
	Running, Waiting int
	// 0 to 1
	Usage float64
	// RunningTokens have KV entries; WaitingTokens are of prompts.
	RunningTokens, WaitingTokens int
	// sorted and distinct
	RunningAdapters, WaitingAdapters []string
}

// Load describes the moment.
func (b *Batch) Load() Load {
	l := Load{Running: len(b.running), Waiting: len(b.waiting), Usage: b.pool.usage()}
	for _, s := range b.running {
		l.RunningTokens += s.computed
		l.RunningAdapters = append(l.RunningAdapters, s.Adapter)
	}
	for _, s := range b.waiting {
		l.WaitingTokens += s.Prompt
		l.WaitingAdapters = append(l.WaitingAdapters, s.Adapter)
	}
	l.RunningAdapters, l.WaitingAdapters = adapters(l.RunningAdapters), adapters(l.WaitingAdapters)
	return l
}

func adapters(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

// Counts returns the totals.
func (b *Batch) Counts() Counts { return b.counts }

// All returns running sequences, then waiting ones.
func (b *Batch) All() []*Sequence { return slices.Concat(b.running, b.waiting) }

// Reset forgets the prefix cache. It returns false, and does nothing, while blocks are in use.
func (b *Batch) Reset() bool { return b.pool.reset() }

// Spoil marks the prefix cache as computed with weights that are gone.
func (b *Batch) Spoil() { b.pool.epoch++ }

func (b *Batch) blocksOf(tokens int) int {
	return (tokens + b.cfg.BlockTokens - 1) / b.cfg.BlockTokens
}
