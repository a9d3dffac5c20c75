package block

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// names maps names to blocks by open addressing, at most half full. The seed keeps clients from choosing slots.
type names struct {
	slots []slot
	shift int
	seed  uint64
	len   int
}

// The block's number is id-1; 0: empty. The tag saves comparisons of names.
type slot struct {
	tag uint32
	id  int32
}

func newNames(count int) names {
	n := bits.Len(uint(2*count - 1))
	return names{slots: make([]slot, 1<<n), shift: 64 - n, seed: rand.Uint64() | 1}
}

func (s *names) home(h *Hash) int {
	return int(binary.LittleEndian.Uint64(h[:]) * s.seed >> s.shift)
}

func tag(h *Hash) uint32 { return binary.LittleEndian.Uint32(h[8:]) }

// find returns the slot of h, or the empty one for it. all is Pool.hash.
func (s *names) find(h *Hash, all []Hash) int {
	t := tag(h)
	for i := s.home(h); ; i = (i + 1) & (len(s.slots) - 1) {
		o := s.slots[i]
		if o.id == 0 || o.tag == t && all[o.id-1] == *h {
			return i
		}
	}
}

func (s *names) at(i int) (id int32, ok bool) { return s.slots[i].id - 1, s.slots[i].id != 0 }

func (s *names) set(i int, h *Hash, id int32) {
	s.slots[i] = slot{tag(h), id + 1}
	s.len++
}

// remove closes the gap in the probe chain.
func (s *names) remove(h *Hash, all []Hash) {
	gap, mask := s.find(h, all), len(s.slots)-1
	for i := (gap + 1) & mask; s.slots[i].id != 0; i = (i + 1) & mask {
		home := s.home(&all[s.slots[i].id-1])
		if (i-home)&mask >= (i-gap)&mask {
			s.slots[gap] = s.slots[i]
			gap = i
		}
	}
	s.slots[gap] = slot{}
	s.len--
}

func (s *names) clear() {
	clear(s.slots)
	s.len = 0
}
