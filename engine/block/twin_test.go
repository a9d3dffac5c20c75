package block_test

import (
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
)

// twin is the obvious pool: holders and a name per block, and the order of freeing.
type twin struct {
	held  []int
	name  []string // "" for none
	plain []int32  // free without a name; the last is given out next
	ring  []int32  // free with a name; the first is evicted next
}

func newTwin(n int) *twin {
	w := &twin{held: make([]int, n), name: make([]string, n)}
	for i := n - 1; i >= 0; i-- {
		w.plain = append(w.plain, int32(i))
	}
	return w
}

func (w *twin) alloc() (int32, bool) {
	var id int32
	switch {
	case len(w.plain) > 0:
		id = w.plain[len(w.plain)-1]
		w.plain = w.plain[:len(w.plain)-1]
	case len(w.ring) > 0:
		id = w.ring[0]
		w.ring = w.ring[1:]
		w.name[id] = ""
	default:
		return 0, false
	}
	w.held[id] = 1
	return id, true
}

func (w *twin) free(id int32) {
	if w.held[id]--; w.held[id] > 0 {
		return
	}
	if w.name[id] == "" {
		w.plain = append(w.plain, id)
	} else {
		w.ring = append(w.ring, id)
	}
}

func (w *twin) take(name string) (int32, bool) {
	id := int32(slices.Index(w.name, name))
	if id < 0 {
		return 0, false
	}
	w.ring = slices.DeleteFunc(slices.Clone(w.ring), func(o int32) bool { return o == id })
	w.held[id]++
	return id, true
}

func (w *twin) register(id int32, name string) {
	if w.name[id] == "" && !slices.Contains(w.name, name) {
		w.name[id] = name
	}
}

func (w *twin) evict() {
	slices.Reverse(w.ring)
	w.plain = append(w.plain, w.ring...)
	w.ring = nil
	clear(w.name)
}

func (w *twin) shed(n int) {
	for len(w.ring) > n {
		id := w.ring[0]
		w.ring, w.name[id] = w.ring[1:], ""
		w.plain = append(w.plain, id)
	}
}

// FuzzPool plays random calls against the twin.
func FuzzPool(f *testing.F) {
	f.Add(uint8(4), []byte{0, 0, 1, 2, 0, 3, 0, 2, 2})
	f.Add(uint8(1), []byte{0, 0, 2, 0, 1, 1, 2, 2, 2})
	f.Add(uint8(3), []byte{0, 0, 0, 3, 11, 19, 7, 4, 12, 0, 0, 5, 13, 6, 0})
	f.Add(uint8(6), []byte{0, 0, 0, 0, 3, 11, 19, 27, 7, 7, 12, 4, 20, 0, 0, 6, 5, 0, 0, 0, 0})
	f.Add(uint8(6), []byte{0, 0, 0, 0, 3, 11, 19, 27, 7, 22, 0, 0, 0})
	f.Fuzz(func(t *testing.T, count uint8, ops []byte) {
		n := int(count)%16 + 1
		p, w := block.New(n, 8), newTwin(n)
		for _, op := range ops {
			play(t, p, w, op&7, int32(op>>3)%int32(n), string(rune('a'+op>>3)))
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			compare(t, p, w)
		}
	})
}

// play makes one call of both.
func play(t *testing.T, p *block.Pool, w *twin, op byte, id int32, letter string) {
	switch {
	case op == 0 || op == 1:
		got, ok := p.Alloc()
		if want, wantOK := w.alloc(); got != want || ok != wantOK {
			t.Fatalf("Alloc: got %d %v, want %d %v", got, ok, want, wantOK)
		}
	case op == 2 && w.held[id] > 0:
		p.Share(id)
		w.held[id]++
	case op == 3 && w.held[id] > 0:
		p.Register(id, name(letter))
		w.register(id, letter)
	case op == 4 && w.held[id] > 0:
		p.Free(id)
		w.free(id)
	case op == 5:
		got, ok := p.Take(name(letter))
		if want, wantOK := w.take(letter); got != want || ok != wantOK {
			t.Fatalf("Take %s: got %d %v, want %d %v", letter, got, ok, want, wantOK)
		}
	case op == 6 && id == 0:
		p.Evict()
		w.evict()
	case op == 6 && w.held[id] > 0:
		writable(t, p, w, id)
	case op == 6:
		p.Shed(int(id))
		w.shed(int(id))
	case op == 7: // all at once
		var all []int32
		for b := range w.held {
			if w.held[b] > 0 {
				all = append(all, int32(b))
			}
		}
		p.Free(all...)
		for _, b := range slices.Backward(all) {
			w.free(b)
		}
	}
}

func writable(t *testing.T, p *block.Pool, w *twin, id int32) {
	ids := []int32{id}
	from, to, copied, ok := p.Writable(ids)
	want, wantOK := id, true
	if shared := w.held[id] > 1 || w.name[id] != ""; shared {
		if want, wantOK = w.alloc(); wantOK {
			w.free(id)
		} else {
			want = id
		}
	}
	if ok != wantOK || to != want || ids[0] != want || from != id || copied != (want != id) {
		t.Fatalf("Writable %d: got %d to %d, copied %v, ok %v; want %d %v", id, from, to, copied, ok, want, wantOK)
	}
}

func compare(t *testing.T, p *block.Pool, w *twin) {
	if got, want := p.Available(), len(w.plain)+len(w.ring); got != want {
		t.Fatalf("available: got %d, want %d", got, want)
	}
	for b := range w.held {
		if got, want := p.Holders(int32(b)), w.held[b]; got != want {
			t.Fatalf("holders of %d: got %d, want %d", b, got, want)
		}
		if w.name[b] != "" {
			if got, ok := p.Lookup(name(w.name[b])); !ok || got != int32(b) {
				t.Fatalf("block %d is not found by its name: %d %v", b, got, ok)
			}
		}
	}
	ids, names := p.Newest(len(w.ring) + 1)
	for i, id := range ids {
		if want := w.ring[len(w.ring)-1-i]; id != want || names[i] != name(w.name[want]) {
			t.Fatalf("newest %d: got block %d, want %d", i, id, want)
		}
	}
	if few, _ := p.Newest(1); len(ids) != len(w.ring) || len(few) != min(1, len(w.ring)) {
		t.Fatalf("newest: got %d blocks, and %d of at most 1; want %d", len(ids), len(few), len(w.ring))
	}
	named := slices.DeleteFunc(slices.Clone(w.name), func(s string) bool { return s == "" })
	if p.Cached() != len(named) {
		t.Fatalf("cached: got %d, want %d", p.Cached(), len(named))
	}
}
