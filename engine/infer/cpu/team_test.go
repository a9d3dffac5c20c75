package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"
)

// TestTeam checks that each chunk runs once, by an existing member, for any sizes, with pauses
// long enough for members and caller to park, and after a stop.
func TestTeam(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		team := team{size: size}
		for round := range 300 {
			n := round % 40
			counts := make([]atomic.Int32, n)
			var bad atomic.Bool
			team.run(n, func(member, chunk int) {
				counts[chunk].Add(1)
				if member < 0 || member >= size {
					bad.Store(true)
				}
				if round%7 == 0 {
					busy(100 * time.Microsecond)
				}
			})
			for i := range counts {
				if c := counts[i].Load(); c != 1 || bad.Load() {
					t.Fatalf("size %d, round %d: chunk %d ran %d times, wrong member %v", size, round, i, c, bad.Load())
				}
			}
			switch {
			case round%50 == 49:
				team.stop()
			case round%5 == 0:
				busy(100 * time.Microsecond)
			}
		}
		team.stop()
		team.stop()
	}
}

// TestTeamFault checks that a chunk that reads a mapped page beyond the file's end is an error, while all
// other chunks run and the team goes on. Any other panic is passed on.
func TestTeamFault(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	tl := &tiles{}
	if err := tl.mapFile(f, 8192); err != nil {
		t.Fatal(err)
	}
	defer tl.close()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 3} {
		team := team{size: size, guarded: tl.contains}
		defer team.stop()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for _, run := range []func(int, func(int, int)){team.run, team.alone} {
			var done atomic.Int32
			read := func(_, chunk int) {
				touched.Store(uint32(tl.mem[chunk%2*4096]))
				done.Add(1)
			}
			for range 3 {
				done.Store(0)
				run(20, read)
				if err := team.err(); !errors.Is(err, errFault) || done.Load() != 10 {
					t.Errorf("size %d: %d chunks done of 10, %v", size, done.Load(), err)
				}
				if err := team.err(); err != nil {
					t.Errorf("the second time: %v", err)
				}
			}
		}
	}
	defer func() {
		if r := recover(); r != "a defect" {
			t.Errorf("recovered %v", r)
		}
	}()
	lonely := team{size: 1}
	lonely.run(1, func(int, int) { panic("a defect") })
}

func busy(d time.Duration) {
	for t := time.Now(); time.Since(t) < d; {
	}
}

func BenchmarkTeam(b *testing.B) {
	team := team{size: 3}
	defer team.stop()
	do := func(int, int) {}
	for b.Loop() {
		team.run(12, do)
	}
}
