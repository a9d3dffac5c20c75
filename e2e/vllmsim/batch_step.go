package vllmsim

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"
)

// Work is one step.
type Work struct {
	Duration time.Duration
	// in tokens
	Prefill, Decode int
	// came in from the queue
	Started []*Sequence
}

// Plan chooses the next step. Without admit, nothing comes in from the queue. The second result is false if there is
// nothing to compute.
func (b *Batch) Plan(admit bool) (Work, bool) {
	var w Work
	if admit {
		b.admit(&w)
	}
	for _, s := range b.running {
		if s.planned = s.target() - s.computed; s.computed >= s.Prompt {
			w.Decode += s.planned
		} else {
			w.Prefill += s.planned
		}
	}
	if w.Prefill+w.Decode == 0 {
		return w, false
	}
	t := b.cfg.Timing
	w.Duration = t.Step + time.Duration(w.Decode)*t.Sequence + time.Duration(w.Prefill)*t.Prefill
	return w, true
}

// target is how many tokens the next one needs computed.
func (s *Sequence) target() int { return s.Prompt + s.Generated }

// Each sequence gets the blocks of all its tokens. One whose adapter has no place is passed over; one without blocks
// ends admission.
func (b *Batch) admit(w *Work) {
	for i := 0; i < len(b.waiting) && len(b.running) < b.cfg.Sequences; {
		s := b.waiting[i]
		if !b.adapterFits(s.Adapter) {
			i++
			continue
		}
		shared, stale := b.lookup(s)
		for _, block := range shared { // held first, so that they are not taken for the rest
			b.pool.hold(block)
		}
		s.blocks = shared
		missing := b.blocksOf(len(s.Tokens)) - len(shared)
		if missing > b.pool.free {
			b.release(s)
			return
		}
		for range missing {
			s.blocks = append(s.blocks, b.pool.take())
		}
		s.computed, s.running = len(shared)*b.cfg.BlockTokens, true
		s.Cached, s.Stale = s.computed, stale
		b.counts.Queries += s.Prompt
		b.counts.Hits += s.Cached
		b.counts.Stale += stale
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.running = append(b.running, s)
		w.Started = append(w.Started, s)
	}
}

func (b *Batch) adapterFits(name string) bool {
	if name == "" || b.cfg.Adapters == 0 {
		return true
	}
	used := map[string]bool{}
	for _, s := range b.running {
		if s.Adapter != "" {
			used[s.Adapter] = true
		}
	}
	return used[name] || len(used) < b.cfg.Adapters
}

// lookup finds the cached blocks of the beginning of s, and how many of their tokens are stale. The last token is
// always computed, for its result.
func (b *Batch) lookup(s *Sequence) (blocks []int, stale int) {
	for i := 0; (i+1)*b.cfg.BlockTokens < s.target(); i++ {
		block, found := b.pool.byHash[b.hash(s, i)]
		if !found {
			break
		}
		blocks = append(blocks, block)
		if b.pool.blocks[block].epoch != b.pool.epoch {
			stale += b.cfg.BlockTokens
		}
	}
	return blocks, stale
}

// hash names block i of s by everything up to its end, and by the adapter.
func (b *Batch) hash(s *Sequence, i int) uint64 {
	for len(s.hashes) <= i {
		h := fnv.New64a()
		var n [8]byte
		put := func(v uint64) {
			binary.LittleEndian.PutUint64(n[:], v)
			_, _ = h.Write(n[:])
		}
		if k := len(s.hashes); k > 0 {
			put(s.hashes[k-1])
		} else {
			_, _ = h.Write([]byte(s.Adapter))
		}
		from := len(s.hashes) * b.cfg.BlockTokens
		for _, t := range s.Tokens[from : from+b.cfg.BlockTokens] {
			put(uint64(t))
		}
		s.hashes = append(s.hashes, h.Sum64())
	}
	return s.hashes[i]
}

// Commit returns the sequences that have one token more, and those that are complete and have left the batch.
func (b *Batch) Commit() (produced, finished []*Sequence) {
	b.running = slices.DeleteFunc(b.running, func(s *Sequence) bool {
		if s.planned == 0 { // it came in, or its last plan was counted
			return false
		}
		b.advance(s)
		s.planned = 0
		if !s.Done() {
			s.Generated++
			produced = append(produced, s)
		}
		if !s.Done() {
			return false
		}
		b.release(s)
		finished = append(finished, s)
		return true
	})
	return produced, finished
}

func (b *Batch) advance(s *Sequence) {
	full := s.computed / b.cfg.BlockTokens
	s.computed += s.planned
	for i := full; i < s.computed/b.cfg.BlockTokens; i++ {
		hash := b.hash(s, i)
		if !b.pool.name(s.blocks[i], hash) {
			continue
		}
		e := Event{Kind: Stored, Hash: hash, Tokens: s.Tokens[i*b.cfg.BlockTokens : (i+1)*b.cfg.BlockTokens]}
		if i > 0 {
			e.Parent = b.hash(s, i-1)
		}
		b.pool.note(e)
	}
}
