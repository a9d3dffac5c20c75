package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// text returns a conversation of so many turns: a longer one begins with the shorter one.
func text(name string, turns int) []byte {
	var b strings.Builder
	b.WriteByte('[')
	for n := range turns {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"user","content":"%s %d %s"}`, name, n, strings.Repeat("word ", 60))
	}
	b.WriteByte(']')
	return []byte(b.String())
}

func chain(tenant, name string, turns int) Chain {
	return ChainOf(SaltOf(tenant), nil, nil, text(name, turns))
}

func placed(t testing.TB, x *prefixIndex, n int) {
	t.Helper()
	for want := range n {
		if got := x.Place(); got != want {
			t.Fatalf("place %d, want %d", got, want)
		}
	}
}

func all(n int) (p places) {
	for k := range n {
		p.Add(k)
	}
	return p
}

func of(p places) (out []int) {
	for n := range len(p) * 64 {
		if p.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// TestLongerConversation: each turn's chain begins with the chain of the turn before it.
func TestLongerConversation(t *testing.T) {
	for turns := 1; turns < 400; turns += 1 + turns/7 {
		short, long := chain("a", "x", turns), chain("a", "x", turns+1)
		if !slices.Equal(short.blocks, long.blocks[:short.Len()]) {
			t.Fatalf("the chain of %d turns does not go on in that of %d", turns, turns+1)
		}
		if have := len(text("x", turns)) - 1; bytesOf(short.Len()) > have || bytesOf(short.Len()+1) <= have {
			t.Errorf("%d turns, %d bytes, have %d blocks", turns, have, short.Len())
		}
	}
}

// TestParts: a part that is rendered before the messages affects each block after it.
func TestParts(t *testing.T) {
	salt, messages := SaltOf("a"), text("x", 10)
	chains := []Chain{
		ChainOf(salt, nil, nil, messages), ChainOf(salt, []byte("system"), nil, messages), ChainOf(salt, nil, []byte("system"), messages),
		ChainOf(salt, []byte("sys"), []byte("tem"), messages), ChainOf(SaltOf("b"), nil, nil, messages), ChainOf(SaltOf("a", ""), nil, nil, messages),
	}
	seen := map[uint64]int{}
	for n, c := range chains {
		for _, hash := range c.blocks {
			if m, there := seen[hash]; there {
				t.Errorf("chains %d and %d share a block", m, n)
			}
			seen[hash] = n
		}
	}
	if n := ChainOf(salt).Len() + ChainOf(salt, nil, nil).Len() + ChainOf(salt, []byte("x")).Len(); n != 0 {
		t.Errorf("%d blocks of nothing", n)
	}
	if n := ChainOf(salt, make([]byte, 2*bytesOf(maxChain))).Len(); n != maxChain {
		t.Errorf("a long chain has %d blocks, want %d", n, maxChain)
	}
}

// TestTenantsShareNothing: even if two tenants' blocks had the same hash, neither would find the other's.
func TestTenantsShareNothing(t *testing.T) {
	var x prefixIndex
	placed(t, &x, 2)
	x.Learn(chain("a", "x", 10), 0, start)
	if depth, _ := x.Find(chain("b", "x", 10), all(2), nil); depth != 0 {
		t.Errorf("b finds %d blocks of a's", depth)
	}
	forged := chain("a", "x", 10)
	forged.salt = SaltOf("b")
	if depth, _ := x.Find(forged, all(2), nil); depth != 0 {
		t.Errorf("b finds %d blocks of a's by their hashes", depth)
	}
	x.Learn(forged, 1, start)
	if depth, seen := x.Find(chain("a", "x", 10), all(2), nil); depth == 0 || !slices.Equal(of(seen), []int{0}) {
		t.Errorf("a finds %d blocks at %v, want them at 0", depth, of(seen))
	}
}

// twin is a plain index with unlimited room.
type twin map[int]map[uint64]bool

func (w twin) find(c Chain, among places) (depth int, seen []int) {
	for n := range c.blocks {
		var has []int
		for place, blocks := range w {
			if among.Has(place) && blocks[c.blocks[n]] {
				has = append(has, place)
			}
		}
		if len(has) == 0 {
			break
		}
		depth, seen = n+1, has
	}
	slices.Sort(seen)
	return depth, seen
}

// TestTwin: after any events the index finds the same as a plain map of everything.
func TestIndexTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var x prefixIndex
		w, places := twin{}, 1+r.IntN(150)
		placed(t, &x, places)
		for n := range places {
			w[n] = map[uint64]bool{}
		}
		for step := range 600 {
			c, n := chain(fmt.Sprint(r.IntN(2)), fmt.Sprint(r.IntN(12)), 1+r.IntN(12)), r.IntN(places)
			switch r.IntN(20) {
			case 0:
				x.Forget(n)
				w[n] = map[uint64]bool{}
			case 1:
				x.Remove(n)
				w[n] = map[uint64]bool{}
				if got := x.Place(); got != n {
					t.Fatalf("seed %d, step %d: place %d, want %d", seed, step, got, n)
				}
			case 2, 3, 4, 5, 6, 7:
				x.Learn(c, n, start)
				for _, hash := range c.blocks {
					w[n][hash] = true
				}
			default:
				among := all(1 + r.IntN(places))
				depth, seen := x.Find(c, among, nil)
				want, where := w.find(c, among)
				if depth != want || !slices.Equal(of(seen), where) {
					t.Fatalf("seed %d, step %d: found %d blocks at %v, want %d at %v", seed, step, depth, of(seen), want, where)
				}
			}
		}
	}
}

// sound checks an index's invariants.
func (x *prefixIndex) sound(t *testing.T) {
	t.Helper()
	ends, prev := 0, noBlock
	for b := x.newest; len(x.byHash) > 0 && b != noBlock; prev, b = b, x.blocks[b].next {
		ends++
		if x.blocks[b].prev != prev || x.blocks[b].followers != 0 || ends > len(x.byHash) {
			t.Fatal("the list of ends is broken")
		}
	}
	followers, sizes := map[int32]int32{}, make([]int, len(x.sizes))
	for hash, b := range x.byHash {
		for n := range sizes {
			if x.seenBy(b).Has(n) {
				sizes[n] += int(x.blocks[b].size)
			}
		}
		if x.blocks[b].hash != hash {
			t.Fatal("a block is found by another hash")
		}
		if before := x.blocks[b].before; before != noBlock {
			followers[before]++
			if x.blocks[before].used < x.blocks[b].used {
				t.Fatal("a block was used after the one before it")
			}
			for w, word := range x.seenBy(b) {
				if word&^x.seenBy(before)[w] != 0 {
					t.Fatal("a place has seen a block and not the one before it")
				}
			}
		}
		if x.blocks[b].followers == 0 {
			ends--
		}
	}
	if ends != 0 {
		t.Fatalf("%d ends are not in the list", -ends)
	}
	if !slices.Equal(sizes, x.sizes) {
		t.Fatalf("the places have seen %v bytes, counted as %v", sizes, x.sizes)
	}
	for _, b := range x.byHash {
		if x.blocks[b].followers != followers[b] {
			t.Fatal("a block does not know its followers")
		}
	}
}

// TestBounded: an index never exceeds its room, forgets the least recently used blocks, and stays sound.
func TestBounded(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		var x prefixIndex
		placed(t, &x, 70)
		x.limit = 1 + r.IntN(60)
		for range 300 {
			c, n := chain("a", fmt.Sprint(r.IntN(10)), 1+r.IntN(30)), r.IntN(70)
			x.Learn(c, n, start)
			if x.Len() > x.limit || len(x.blocks) > x.limit {
				t.Fatalf("seed %d: %d blocks in %d, room for %d", seed, x.Len(), len(x.blocks), x.limit)
			}
			depth, seen := x.Find(c, all(70), nil)
			if want := min(c.Len(), x.limit); depth != want || !seen.Has(n) {
				t.Fatalf("seed %d: of what was just learnt %d of %d blocks are known", seed, depth, want)
			}
			x.sound(t)
		}
	}
}

// TestTrim: a place forgets its oldest blocks, down to a size; blocks sent since a time stay, and other places forget
// nothing.
func TestTrim(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		var x prefixIndex
		placed(t, &x, 70)
		x.limit = 4000
		sent, used := [2]map[string]time.Time{{}, {}}, map[string]time.Time{} // at places 0 and 69, and at any
		now := start
		for range 200 {
			now = now.Add(time.Second)
			k, name := r.IntN(2), fmt.Sprint(r.IntN(20))
			if r.IntN(5) > 0 {
				x.Learn(chain("a", name, 8), 69*k, now)
				sent[k][name], used[name] = now, now
				continue
			}
			size, other, most, since := x.Size(69*k), x.Size(69-69*k), r.IntN(20_000), now.Add(-time.Duration(r.IntN(20))*time.Second)
			x.Trim(69*k, most, since)
			x.sound(t)
			if x.Size(69-69*k) != other {
				t.Fatalf("seed %d: another place has forgotten something", seed)
			}
			kept := 0
			for name, at := range sent[k] {
				depth, seen := x.Find(chain("a", name, 8), all(70), nil)
				if !used[name].Before(since) {
					kept++
				}
				if at.Before(since) {
					if !seen.Has(69 * k) {
						delete(sent[k], name)
					}
					continue
				}
				if depth != chain("a", name, 8).Len() || !seen.Has(69*k) {
					t.Fatalf("seed %d: what was sent %s ago is forgotten, %s were to stay", seed, now.Sub(at), now.Sub(since))
				}
			}
			if now := x.Size(69 * k); now > most && now < size && now > kept*bytesOf(chain("a", "1", 8).Len()+1) {
				t.Fatalf("seed %d: %d bytes are left of %d, want %d", seed, now, size, most)
			}
		}
	}
	var x prefixIndex
	placed(t, &x, 1)
	size := bytesOf(chain("a", "x", 8).Len())
	for k, name := range []string{"x", "y", "z", "x"} {
		x.Learn(chain("a", name, 8), 0, start.Add(time.Duration(k)*time.Second))
	}
	x.Trim(0, 2*size, start.Add(time.Hour))
	for name, want := range map[string]int{"x": size, "y": 0, "z": size} {
		if depth, _ := x.Find(chain("a", name, 8), all(1), nil); bytesOf(depth) != want {
			t.Errorf("%s: %d bytes are known, want %d", name, bytesOf(depth), want)
		}
	}
	x.Trim(0, 0, start.Add(time.Hour))
	if x.Size(0) != 0 || x.Size(-1) != 0 || x.Size(5) != 0 {
		t.Errorf("%d bytes are left of nothing", x.Size(0))
	}
}

// TestOldestGoesFirst: reused blocks stay, and an older conversation is forgotten before any of a newer one.
func TestOldestGoesFirst(t *testing.T) {
	var x prefixIndex
	placed(t, &x, 1)
	size := chain("a", "x", 10).Len()
	x.limit = 3 * size
	for _, name := range []string{"x", "y", "z", "x", "w"} {
		x.Learn(chain("a", name, 10), 0, start)
	}
	for name, want := range map[string]int{"x": size, "y": 0, "z": size, "w": size} {
		if depth, _ := x.Find(chain("a", name, 10), all(1), nil); depth != want {
			t.Errorf("%s: %d blocks, want %d", name, depth, want)
		}
	}
}

// TestLastPlaceGoes: an index without places is empty.
func TestLastPlaceGoes(t *testing.T) {
	var x prefixIndex
	placed(t, &x, maxPlaces)
	if n := x.Place(); n != -1 {
		t.Errorf("one more place: %d", n)
	}
	x.Learn(chain("a", "x", 10), maxPlaces-1, start)
	x.Learn(chain("a", "x", 10), -1, start)
	for n := range maxPlaces {
		x.Remove(n)
	}
	if x.Len() != 0 || x.blocks != nil || x.seen != nil {
		t.Errorf("%d blocks are left", x.Len())
	}
	x.Learn(chain("a", "x", 10), 0, start) // the place was removed
	if x.Len() != 0 {
		t.Errorf("%d blocks were learnt at no place", x.Len())
	}
}

// TestKey: a conversation has the same key in each turn, its own, for activators that know the shared beginning and
// not the conversation. Two places of three keep their keys when one is removed.
func TestKey(t *testing.T) {
	system := []byte(strings.Repeat("be kind ", 100))
	of := func(name string, turns int) Chain { return ChainOf(SaltOf("a"), system, text(name, turns)) }
	var x prefixIndex
	placed(t, &x, 2)
	if of("x", 3).Key(x.Seen(of("x", 3))) != of("y", 9).Key(x.Seen(of("y", 9))) || (Chain{}).Key(0) != 0 {
		t.Error("the key of one that knows nothing is not that of the first block")
	}
	x.Learn(of("other", 5), 0, start)
	keys := map[uint64]string{}
	for _, name := range []string{"x", "y", "z"} {
		for turns := 1; turns < 20; turns++ {
			c := of(name, turns)
			keys[c.Key(x.Seen(c))] = name
		}
	}
	if len(keys) != 3 {
		t.Errorf("three conversations have %d keys", len(keys))
	}
	x.Forget(0)
	if n := x.Seen(of("other", 5)); n != 0 {
		t.Errorf("%d blocks are known of a place that was forgotten", n)
	}
	if c := of("x", 2); c.Key(c.Len()) != c.blocks[c.Len()-1] {
		t.Error("the key of a prompt that is known is not that of its last block")
	}
	best := func(key uint64, places ...string) string {
		return slices.MaxFunc(places, func(a, b string) int {
			if prefers(key, Hash(a)) < prefers(key, Hash(b)) {
				return -1
			}
			return 1
		})
	}
	count := map[string]int{}
	for n := range 3000 {
		key := chain("a", fmt.Sprint(n), 1).Key(0)
		was, is := best(key, "i", "j", "k"), best(key, "i", "j")
		if was != "k" && was != is {
			t.Fatal("a key has moved whose place is still there")
		}
		count[was]++
	}
	for _, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("keys are not even: %v", count)
		}
	}
}

// FuzzChain: for any body, a continued prompt repeats the chain, a changed byte changes each block from there on and
// none before, and no other tenant shares any.
func FuzzChain(f *testing.F) {
	f.Add([]byte(`"be kind"`), []byte(`[{"type":"function"}]`), text("x", 20), []byte(`,{"role":"user"}]`), 300)
	f.Add([]byte{}, []byte{}, []byte(`]`), []byte{}, 0)
	f.Fuzz(func(t *testing.T, system, tools, messages, more []byte, at int) {
		a := ChainOf(SaltOf("a"), system, tools, messages)
		for _, hash := range ChainOf(SaltOf("b"), system, tools, messages).blocks {
			if slices.Contains(a.blocks, hash) {
				t.Fatal("two tenants share a block")
			}
		}
		if len(messages) == 0 {
			return
		}
		longer := ChainOf(SaltOf("a"), system, tools, slices.Concat(messages[:len(messages)-1], more, []byte("]")))
		if longer.Len() < a.Len() || !slices.Equal(a.blocks, longer.blocks[:a.Len()]) {
			t.Fatal("a prompt that goes on has other blocks")
		}
		if at < 0 || at >= len(messages)-1 {
			return
		}
		other := slices.Clone(messages)
		other[at]++
		b := ChainOf(SaltOf("a"), system, tools, other)
		same := ChainOf(SaltOf("a"), system, tools, append(slices.Clone(messages[:at]), ']')).Len() // the blocks before the byte
		for n := range a.blocks {
			if (a.blocks[n] == b.blocks[n]) != (n < same) {
				t.Fatalf("block %d of %d: equal %t, the texts differ in block %d", n, a.Len(), a.blocks[n] == b.blocks[n], same)
			}
		}
	})
}

// BenchmarkFind looks a prompt up among 1,000 places and 200,000 blocks, including hashing.
func BenchmarkFind(b *testing.B) {
	var x prefixIndex
	placed(b, &x, 1000)
	r := rand.New(rand.NewPCG(1, 1))
	for n := 0; x.Len() < 200_000; n++ {
		x.Learn(chain("a", fmt.Sprint(n), 400), r.IntN(1000), start)
	}
	among := all(1000)
	for _, tokens := range []int{1000, 4000, 100_000} {
		prompt := text("q", 4*tokens/300)[:4*tokens]
		x.Learn(ChainOf(SaltOf("a"), prompt[:3*tokens]), 7, start)
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(prompt)))
			salt := SaltOf("a")
			var into places
			for b.Loop() {
				_, into = x.Find(ChainOf(salt, prompt), among, into)
			}
		})
		b.Run(fmt.Sprint("learn-", tokens), func(b *testing.B) {
			c := ChainOf(SaltOf("a"), prompt)
			for b.Loop() {
				x.Forget(9)
				x.Learn(c, 9, start)
			}
		})
	}
}

// TestUnlearn: only the blocks that a chain does not share with others are forgotten.
func TestUnlearn(t *testing.T) {
	var x prefixIndex
	placed(t, &x, 2)
	long, other := chain("a", "x", 9), chain("a", "x", 3)
	x.Learn(long, 0, start)
	x.Learn(long, 1, start)
	x.Unlearn(long, 0)
	if depth, seen := x.Find(long, all(2), nil); depth != long.Len() || !slices.Equal(of(seen), []int{1}) {
		t.Errorf("%d of %d blocks are known, at %v, want all at place 1", depth, long.Len(), of(seen))
	}
	if got := x.Size(0); got != 0 {
		t.Errorf("place 0 has %d bytes left", got)
	}
	x.Learn(long, 0, start)
	x.Unlearn(other, 0) // the longer one needs it
	if depth, seen := x.Find(long, all(1), nil); depth != long.Len() || !slices.Equal(of(seen), []int{0}) {
		t.Errorf("%d of %d blocks are known at %v, want all", depth, long.Len(), of(seen))
	}
	x.Unlearn(long, -1) // no place
}
