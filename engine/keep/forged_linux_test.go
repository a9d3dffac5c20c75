package keep_test

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/keep"
)

// TestForgedHeaders checks that a header with a correct sum and wrong numbers, or of another model or version, is
// refused. No block is found by it, and no memory is allocated for the number of blocks that it claims. Truncated
// files are refused too.
func TestForgedHeaders(t *testing.T) {
	dir, list := t.TempDir(), names(0, 3)
	cfg := keep.Config{Dir: dir, Limit: 1 << 20, Key: [32]byte{5}}
	save(t, open(t, cfg), list)
	path := kept(t, dir)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put64 := func(at int, n uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], n); return b }
	}
	blocks := func(n uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[88:], n); return b }
	}
	both := func(fs ...func([]byte) []byte) func([]byte) []byte {
		return func(b []byte) []byte {
			for _, f := range fs {
				b = f(b)
			}
			return b
		}
	}
	ways := map[string]func([]byte) []byte{
		"another version":                             func(b []byte) []byte { return append([]byte("RSKEEP02"), b[8:]...) },
		"another model":                               func(b []byte) []byte { b[71] ^= 1; return b },
		"blocks of nothing":                           put64(72, 0),
		"blocks below nothing":                        put64(72, 1<<64-1),
		"larger blocks":                               put64(72, blockBytes+1),
		"the largest blocks":                          put64(72, 1<<63-1),
		"blocks that begin at the start":              put64(80, 0),
		"blocks that begin before":                    put64(80, 1<<64-1),
		"blocks that begin far behind":                put64(80, 1<<62),
		"blocks that begin in the header":             put64(80, 92),
		"no blocks":                                   blocks(0),
		"one block less":                              blocks(2),
		"one block more":                              blocks(4),
		"the most blocks":                             blocks(1<<32 - 1),
		"the most blocks, and where they would begin": both(blocks(1<<32-1), put64(80, uint64(int64(len(good))-(1<<32-1)*blockBytes)&(1<<64-1))),
		"a byte more":                                 func(b []byte) []byte { return append(b, 0) },
	}
	refused := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := open(t, cfg)
		runtime.ReadMemStats(&after)
		if n := found(t, s, list); n != 0 || s.Stats().Refused != 1 {
			t.Errorf("%s: %d blocks are found, %+v", what, n, s.Stats())
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 1<<20 {
			t.Errorf("%s: %d bytes were made for it", what, made)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: the file is there still", what)
		}
	}
	for what, spoil := range ways {
		b := spoil(slices.Clone(good))
		sum := sha256.Sum256(b[40:4096])
		copy(b[8:], sum[:])
		refused(what, b)
	}
	for n := range len(good) {
		if n < 200 || n%97 == 0 || n > 4090 {
			refused("cut", good[:n])
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil || found(t, open(t, cfg), list) != 3 {
		t.Errorf("what was written is not found: %v", err)
	}
}
