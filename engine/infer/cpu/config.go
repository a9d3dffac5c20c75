package cpu

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
)

// Config sets limits. The zero value suits most uses.
type Config struct {
	// Threads is the most compute goroutines. 0: one less than GOMAXPROCS, at least one.
	Threads int
	// Context lowers the model's positions per sequence. 0: the model's.
	Context int
	// Sequences of full length fit the cache. 0: 8.
	Sequences int
	// CacheBytes limits the cache, whose memory is used only as blocks are written. 0: 1 GiB.
	CacheBytes int64
	// TileDir keeps packed models. "": rouse/tiles in the user's cache folder.
	TileDir string
	// TileFrom is the bytes from which a packed model is kept in TileDir; smaller ones are packed at each start. 0:
	// 32 MiB.
	TileFrom int64
	// TileLimit bounds the bytes in TileDir; the least recently used files are deleted. A larger model is packed in
	// memory. 0: 64 GiB.
	TileLimit int64
	// Projector makes embeddings of images (llama.cpp's mmproj-….gguf). "": none.
	Projector string
	// Shard makes the Runner one of several ranks. Zero: it computes alone.
	Shard Shard
	// Log gets a line for each packed model that is made or deleted. nil: none.
	Log *slog.Logger

	projects bool // the file is a projector
}

// Validate rejects negative and implausibly large values.
func (c Config) Validate() error {
	for _, f := range []struct {
		name    string
		v, most int64
	}{
		{"Threads", int64(c.Threads), 1 << 10}, {"Context", int64(c.Context), 1 << 30}, {"Sequences", int64(c.Sequences), 1 << 20},
		{"CacheBytes", c.CacheBytes, 1 << 50}, {"TileFrom", c.TileFrom, 1 << 60}, {"TileLimit", c.TileLimit, 1 << 60},
	} {
		if f.v < 0 || f.v > f.most {
			return fmt.Errorf("cpu config: %s is %d, want 0 for the default or up to %d", f.name, f.v, f.most)
		}
	}
	return c.Shard.validate()
}

func (c Config) withDefaults() Config {
	c.Threads = cmp.Or(c.Threads, max(1, runtime.GOMAXPROCS(0)-1))
	c.Sequences = cmp.Or(c.Sequences, 8)
	c.CacheBytes = cmp.Or(c.CacheBytes, 1<<30)
	c.TileFrom = cmp.Or(c.TileFrom, 32<<20)
	c.TileLimit = cmp.Or(c.TileLimit, 64<<30)
	c.TileDir = cmp.Or(c.TileDir, tileDir())
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}
