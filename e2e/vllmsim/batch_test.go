package vllmsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func config() BatchConfig {
	return BatchConfig{Sequences: 4, BlockTokens: 4, Blocks: 32,
		Timing: Timing{Prefill: time.Millisecond, Step: 10 * time.Millisecond, Sequence: 2 * time.Millisecond}}
}

// sequence has a prompt of n tokens that begin with from, and m tokens of output.
func sequence(from, n, m int) *Sequence {
	s := &Sequence{Prompt: n}
	for i := range n + m {
		s.Tokens = append(s.Tokens, Token(from+i))
	}
	return s
}

// drain steps until nothing is left and returns the time and the order in which sequences finished.
func drain(t *testing.T, b *Batch) (total time.Duration, done []*Sequence) {
	t.Helper()
	for range 10000 {
		w, work := b.Plan(true)
		if !work {
			if l := b.Load(); l.Running+l.Waiting > 0 {
				t.Fatalf("nothing to do for %+v", l)
			}
			return total, done
		}
		total += w.Duration
		_, finished := b.Commit()
		done = append(done, finished...)
	}
	t.Fatal("it never ends")
	return 0, nil
}

func TestTimeGrowsWithTheBatch(t *testing.T) {
	alone := NewBatch(config())
	alone.Add(sequence(0, 10, 5))
	one, _ := drain(t, alone)
	// The first step computes the prompt, four more a token each.
	if want := 10*time.Millisecond + 10*time.Millisecond + 4*12*time.Millisecond; one != want {
		t.Errorf("one sequence took %s, want %s", one, want)
	}
	b := NewBatch(config())
	for i := range 4 {
		b.Add(sequence(100*i, 10, 5))
	}
	four, _ := drain(t, b)
	if want := 50*time.Millisecond + 4*18*time.Millisecond; four != want {
		t.Errorf("four sequences took %s, want %s", four, want)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	b := NewBatch(config())
	var all []*Sequence
	for i := range 9 {
		s := sequence(100*i, 4, 3)
		all = append(all, s)
		b.Add(s)
	}
	if l := b.Load(); l.Waiting != 9 || l.WaitingTokens != 36 {
		t.Errorf("%+v, want 9 waiting with 36 tokens", l)
	}
	if w, _ := b.Plan(true); len(w.Started) != 4 {
		t.Errorf("%d started, want 4", len(w.Started))
	}
	if l := b.Load(); l.Running != 4 || l.Waiting != 5 || l.Usage == 0 {
		t.Errorf("%+v, want 4 running and 5 waiting", l)
	}
	b.Commit()
	if _, done := drain(t, b); !slices.Equal(done, all) {
		t.Error("they did not finish in the order in which they came")
	}
	if l := b.Load(); l.Usage != 0 {
		t.Errorf("%+v at the end, want no block in use", l)
	}
}

func TestPromptWithoutOutput(t *testing.T) {
	b := NewBatch(config())
	b.Add(sequence(0, 70, 0))
	if _, done := drain(t, b); len(done) != 1 || done[0].Generated != 0 {
		t.Errorf("%d done", len(done))
	}
}

func TestPrefixCache(t *testing.T) {
	b := NewBatch(config())
	b.Add(sequence(0, 18, 2))
	drain(t, b)
	again := sequence(0, 18, 2)
	b.Add(again)
	quick, _ := drain(t, b)
	if again.Cached != 16 { // four full blocks of four; the rest is computed
		t.Errorf("%d tokens cached, want 16", again.Cached)
	}
	if want := 10*time.Millisecond + 2*time.Millisecond + 12*time.Millisecond; quick != want {
		t.Errorf("took %s, want %s", quick, want)
	}
	other := sequence(0, 18, 2)
	other.Adapter = "sql"
	b.Add(other)
	drain(t, b)
	if other.Cached != 0 {
		t.Errorf("an adapter has %d tokens of the base model's cache", other.Cached)
	}
	if c := b.Counts(); c.Queries != 54 || c.Hits != 16 || c.Stale != 0 {
		t.Errorf("%+v, want 54 queries and 16 hits", c)
	}
}

func TestStaleHitsAreCounted(t *testing.T) {
	b := NewBatch(config())
	b.Add(sequence(0, 18, 2))
	drain(t, b)
	b.Spoil()
	again := sequence(0, 18, 2)
	b.Add(again)
	drain(t, b)
	if again.Stale != 16 || b.Counts().Stale != 16 {
		t.Errorf("%d stale, want 16", again.Stale)
	}
	if !b.Reset() {
		t.Fatal("the idle cache can't be reset")
	}
	clean := sequence(0, 18, 2)
	b.Add(clean)
	drain(t, b)
	if clean.Cached != 0 || clean.Stale != 0 {
		t.Errorf("after the reset: %d cached, %d stale", clean.Cached, clean.Stale)
	}
	b.Add(sequence(900, 8, 4))
	b.Plan(true)
	if b.Reset() {
		t.Error("the cache is reset under a running sequence")
	}
}

func TestNoRoom(t *testing.T) {
	cfg := config()
	cfg.Blocks = 8 // 32 tokens
	b := NewBatch(cfg)
	first, second := sequence(0, 12, 16), sequence(100, 12, 16)
	b.Add(first)
	b.Add(second)
	if w, _ := b.Plan(true); !slices.Equal(w.Started, []*Sequence{first}) {
		t.Errorf("%d started, want only the first", len(w.Started))
	}
	b.Commit()
	if _, done := drain(t, b); !slices.Equal(done, []*Sequence{first, second}) {
		t.Errorf("%d finished, want both in turn", len(done))
	}
	if b.Add(sequence(0, 30, 3)) {
		t.Error("a sequence that never fits is taken")
	}
}

func TestAdapterPlaces(t *testing.T) {
	cfg := config()
	cfg.Adapters = 1
	b := NewBatch(cfg)
	for i, adapter := range []string{"a", "b", "a", ""} {
		s := sequence(100*i, 4, 2)
		s.Adapter = adapter
		b.Add(s)
	}
	w, _ := b.Plan(true)
	if l := b.Load(); len(w.Started) != 3 || !slices.Equal(l.RunningAdapters, []string{"a"}) || !slices.Equal(l.WaitingAdapters, []string{"b"}) {
		t.Errorf("%d started, running %v, waiting %v; want b to wait alone", len(w.Started), l.RunningAdapters, l.WaitingAdapters)
	}
	b.Commit()
	drain(t, b)
}

func TestNobodyNewComesIn(t *testing.T) {
	b := NewBatch(config())
	b.Add(sequence(0, 4, 3))
	b.Plan(true)
	b.Commit()
	b.Add(sequence(100, 4, 3))
	for range 9 {
		if _, work := b.Plan(false); !work {
			break
		}
		b.Commit()
	}
	if l := b.Load(); l.Running != 0 || l.Waiting != 1 {
		t.Errorf("%+v, want the new one to wait and the old one to be done", l)
	}
}

// FuzzBatch adds, removes and steps at random. Blocks are always held once or free, no sequence starves, and outputs
// are counted exactly.
func FuzzBatch(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 9, 9, 9, 40, 41, 255, 0, 7})
	f.Add([]byte(strings.Repeat("\x05\xff\x81", 40)))
	f.Fuzz(func(t *testing.T, moves []byte) {
		cfg := config()
		cfg.Blocks = 12
		b := NewBatch(cfg)
		var alive []*Sequence
		for i, m := range moves {
			switch {
			case m < 120 && len(alive) < 20:
				if s := sequence(int(m%4)*50, 1+int(m)%20, int(m/4)%12); b.Add(s) {
					alive = append(alive, s)
				}
			case m > 240 && len(alive) > 0:
				b.Remove(alive[i%len(alive)])
				alive = slices.Delete(alive, i%len(alive), i%len(alive)+1)
			default:
				b.Plan(m%3 > 0)
				_, finished := b.Commit()
				alive = slices.DeleteFunc(alive, func(s *Sequence) bool { return slices.Contains(finished, s) })
			}
			if err := b.check(); err != "" {
				t.Fatalf("move %d (%d): %s", i, m, err)
			}
		}
		_, done := drain(t, b)
		if len(done) != len(alive) {
			t.Errorf("%d finished, want %d", len(done), len(alive))
		}
		for _, s := range done {
			if s.Prompt+s.Generated != len(s.Tokens) {
				t.Errorf("%d tokens generated, want %d", s.Generated, len(s.Tokens)-s.Prompt)
			}
		}
	})
}

// check counts the holders of every block again.
func (b *Batch) check() string {
	holders := make([]int, len(b.pool.blocks))
	for _, s := range b.running {
		if have, want := len(s.blocks), b.blocksOf(s.computed); have < want {
			return fmt.Sprintf("a sequence of %d tokens has %d blocks", s.computed, have)
		}
		for _, i := range s.blocks {
			holders[i]++
		}
	}
	free := 0
	for i, block := range b.pool.blocks {
		if block.holders != holders[i] {
			return fmt.Sprintf("block %d has %d holders and says %d", i, holders[i], block.holders)
		}
		if (block.at != nil) != (block.holders == 0) {
			return fmt.Sprintf("block %d is free and held, or neither", i)
		}
		if block.holders == 0 {
			free++
		}
	}
	if free != b.pool.free || free != b.pool.unused.Len() {
		return fmt.Sprintf("%d blocks are free, the count says %d", free, b.pool.free)
	}
	return ""
}
