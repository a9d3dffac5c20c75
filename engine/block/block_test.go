package block_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
)

func TestTranscript(t *testing.T) {
	text, err := os.ReadFile("testdata/pool.txt")
	if err != nil {
		t.Fatal(err)
	}
	var p *block.Pool
	ran := 0
	for n, line := range strings.Split(string(text), "\n") {
		call, want, ok := strings.Cut(line, "=>")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		ran++
		if got := do(&p, strings.Fields(call)); got != strings.TrimSpace(want) {
			t.Errorf("line %d: %s: got %q, want %q", n+1, strings.TrimSpace(call), got, strings.TrimSpace(want))
		}
		if err := p.Check(); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
	}
	if ran < 15 {
		t.Fatalf("the transcript has %d calls", ran)
	}
}

// do runs one line of the transcript.
func do(p **block.Pool, call []string) (out string) {
	defer func() {
		if recover() != nil {
			out = "panic"
		}
	}()
	var args []int32
	for _, a := range call[1:] {
		var n int32
		fmt.Sscan(a, &n)
		args = append(args, n)
	}
	switch call[0] {
	case "new":
		*p = block.New(int(args[0]), int(args[1]))
	case "alloc":
		id, ok := (*p).Alloc()
		out = fmt.Sprint(id, ", ")
		if !ok {
			out = "none, "
		}
	case "allocn":
		ids, ok := (*p).AllocN(nil, int(args[0]))
		out = strings.Trim(fmt.Sprint(ids), "[]") + ", "
		if !ok {
			out = "none, "
		}
	case "share":
		(*p).Share(args[0])
		return fmt.Sprintf("%d holders", (*p).Holders(args[0]))
	case "free":
		(*p).Free(args...)
	case "need":
		return fmt.Sprint((*p).Need(int(args[0])))
	}
	return out + fmt.Sprintf("%d free", (*p).Available())
}

// twin is the obvious pool: a list of holders per block, and the order of freeing.
type twin struct {
	held map[int32]int
	free []int32
}

func (w *twin) drop(id int32) {
	w.held[id]--
	if w.held[id] == 0 {
		delete(w.held, id)
		w.free = append(w.free, id)
	}
}

// FuzzPool plays random calls against the twin.
func FuzzPool(f *testing.F) {
	f.Add(uint8(4), []byte{0, 0, 1, 2, 0, 3, 0, 2, 2})
	f.Add(uint8(1), []byte{0, 0, 2, 0, 1, 1, 2, 2, 2})
	f.Fuzz(func(t *testing.T, count uint8, ops []byte) {
		n := int(count)%16 + 1
		p := block.New(n, 8)
		w := &twin{held: map[int32]int{}}
		for i := n - 1; i >= 0; i-- {
			w.free = append(w.free, int32(i))
		}
		for _, op := range ops {
			id := int32(op>>2) % int32(n)
			switch {
			case op&3 == 0:
				got, ok := p.Alloc()
				if ok != (len(w.free) > 0) {
					t.Fatalf("Alloc: %v with %d free", ok, len(w.free))
				}
				if ok {
					want := w.free[len(w.free)-1]
					w.free = w.free[:len(w.free)-1]
					w.held[want] = 1
					if got != want {
						t.Fatalf("Alloc: got %d, want %d", got, want)
					}
				}
			case op&3 == 1 && w.held[id] > 0:
				p.Share(id)
				w.held[id]++
			case op&3 == 2 && w.held[id] > 0:
				p.Free(id)
				w.drop(id)
			case op&3 == 3: // all at once
				var all []int32
				for b := range w.held {
					all = append(all, b)
				}
				slices.Sort(all)
				p.Free(all...)
				for _, b := range slices.Backward(all) {
					w.drop(b)
				}
			}
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			if p.Available() != len(w.free) {
				t.Fatalf("available: got %d, want %d", p.Available(), len(w.free))
			}
			for b := range int32(n) {
				if p.Holders(b) != w.held[b] {
					t.Fatalf("holders of %d: got %d, want %d", b, p.Holders(b), w.held[b])
				}
			}
		}
	})
}
