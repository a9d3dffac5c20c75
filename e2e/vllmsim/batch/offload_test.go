package batch

import (
	"testing"
	"time"
)

// What a connector keeps in the host's memory is loaded and not computed, after the cache was forgotten; not after it was told to
// forget too; and what was computed without weights is stale.
func TestOffloaded(t *testing.T) {
	cfg := config()
	cfg.Offloaded, cfg.Timing.Load = 6, 100*time.Microsecond
	b := New(cfg)
	ask := func(from int) (took time.Duration, s *Sequence) {
		s = sequence(from, 17, 1) // four whole blocks and a token
		b.Add(s)
		took, _ = drain(t, b)
		return took, s
	}
	computed, _ := ask(0)
	if want := 27 * time.Millisecond; computed != want {
		t.Errorf("computed in %s, want %s", computed, want)
	}
	b.Reset()
	took, s := ask(0)
	if want := 10*time.Millisecond + 2*time.Millisecond - time.Millisecond + 4*100*time.Microsecond; took > want+time.Millisecond || s.Cached != 16 || s.Stale != 0 {
		t.Errorf("loaded in %s, %d tokens, %d stale; want about %s, 16, 0", took, s.Cached, s.Stale, want)
	}
	if c := b.Counts(); c.External != 16 || c.Hits != 0 {
		t.Errorf("%+v: want that all 16 are external", c)
	}
	if _, s := ask(0); s.Cached != 16 || b.Counts().Hits != 16 {
		t.Errorf("%d tokens, %+v: want that what was loaded is in the cache", s.Cached, b.Counts())
	}
	// There is room for six blocks: another prompt takes four of them from those that were used longest ago.
	ask(100)
	if n := b.Offloaded(); n != 6 {
		t.Errorf("%d blocks are kept, want 6", n)
	}
	b.Reset()
	if _, s := ask(100); s.Cached != 16 {
		t.Errorf("the last prompt: %d tokens, want 16", s.Cached)
	}
	b.Reset()
	b.ResetOffloaded()
	if _, s := ask(100); s.Cached != 0 {
		t.Errorf("after it was forgotten: %d tokens", s.Cached)
	}
	// Weights are dropped and read again, and something is computed between the two.
	b.Spoil()
	b.Reset()
	ask(200)
	b.SpoilOffloaded()
	b.Spoil()
	b.Reset()
	if _, s := ask(200); s.Cached != 16 || s.Stale != 16 {
		t.Errorf("computed without weights: %d tokens, %d stale; want 16 of each", s.Cached, s.Stale)
	}
}
