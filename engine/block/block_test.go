package block_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/block"
)

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 2 {
		t.Fatalf("transcripts: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
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
				t.Errorf("%s:%d: %s: got %q, want %q", file, n+1, strings.TrimSpace(call), got, strings.TrimSpace(want))
			}
			if err := p.Check(); err != nil {
				t.Fatalf("%s:%d: %v", file, n+1, err)
			}
		}
		if ran < 15 {
			t.Fatalf("%s has %d calls", file, ran)
		}
	}
}

// name returns the hash of a letter.
func name(letter string) block.Hash { return block.Hash{letter[0]} }

// do runs one line of a transcript.
func do(p **block.Pool, call []string) (out string) {
	defer func() {
		if recover() != nil {
			out = "panic"
		}
	}()
	var args []int32
	var names []block.Hash
	for _, a := range call[1:] {
		var n int32
		if _, err := fmt.Sscan(a, &n); err == nil {
			args = append(args, n)
		} else {
			names = append(names, name(a))
		}
	}
	list := func(ids []int32) string { return strings.Trim(fmt.Sprint(ids), "[]") + ", " }
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
		out = list(ids)
		if !ok {
			out = "none, "
		}
	case "writable":
		from, to, copied, ok := (*p).Writable(args)
		out = list(args)
		if copied {
			out += fmt.Sprintf("copy %d to %d, ", from, to)
		}
		if !ok {
			out = "none, "
		}
	case "take", "lookup":
		find := (*p).Take
		if call[0] == "lookup" {
			find = (*p).Lookup
		}
		id, ok := find(names[0])
		switch {
		case !ok:
			return "none"
		case call[0] == "lookup":
			return fmt.Sprint(id)
		}
		out = fmt.Sprint(id, ", ")
	case "register", "evict":
		if call[0] == "evict" {
			(*p).Evict()
		} else {
			(*p).Register(args[0], names[0])
		}
		return fmt.Sprintf("%d cached", (*p).Cached())
	case "match":
		found, free := (*p).Match(names)
		return fmt.Sprintf("%d, %d of them free", found, free)
	case "evictions":
		return fmt.Sprint((*p).Evictions())
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

func TestHash(t *testing.T) {
	roots := map[block.Hash]block.Key{}
	for _, k := range []block.Key{{}, {Adapter: "a"}, {Salt: "a"}, {Adapter: "a", Salt: "b"}, {Adapter: "ab"}, {Salt: "ab"}} {
		if o, taken := roots[k.Root()]; taken {
			t.Errorf("%+v and %+v have one root", k, o)
		}
		roots[k.Root()] = k
	}
	tokens := make([]int32, 300)
	for i := range tokens {
		tokens[i] = int32(i * 7)
	}
	for _, size := range []int{1, 16, 64, 65, 100} {
		whole := block.Chain(nil, block.Hash{}, tokens, size)
		if got, want := len(whole), len(tokens)/size; got != want {
			t.Errorf("blocks of %d: %d names, want %d", size, got, want)
		}
		parts := block.Chain(block.Chain(nil, block.Hash{}, tokens[:150], size), block.Hash{}, tokens, size)
		if fmt.Sprint(parts) != fmt.Sprint(whole) {
			t.Errorf("blocks of %d: the chain of parts is another one", size)
		}
		for changed := range whole {
			other := append([]int32(nil), tokens...)
			other[changed*size+size-1]++
			for i, h := range block.Chain(nil, block.Hash{}, other, size) {
				if (h == whole[i]) != (i < changed) {
					t.Fatalf("blocks of %d, a token of block %d is another one: block %d has the same name: %v", size, changed, i, h == whole[i])
				}
			}
		}
	}
}
