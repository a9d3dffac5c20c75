package cpu

import (
	"fmt"
	"runtime"
)

// Config sets limits. The zero value is good for most uses.
type Config struct {
	// Threads is how many goroutines compute, at most. 0: one less than GOMAXPROCS, from 1 to 4,
	// so that whoever feeds the model has a processor too.
	Threads int
	// Context lowers the model's number of positions per sequence. 0: as the model says.
	Context int
	// BlockSize is the number of positions in a cache block. 0: 16.
	BlockSize int
	// Sequences is how many sequences of full length the cache is made for. 0: 8.
	Sequences int
	// CacheBytes limits the cache, whatever Sequences asks for. Memory is taken only as
	// blocks are written. 0: 1 GiB.
	CacheBytes int64
}

// Validate refuses negative values and ones far beyond any use.
func (c Config) Validate() error {
	for _, f := range []struct {
		name    string
		v, most int64
	}{
		{"Threads", int64(c.Threads), 1 << 10}, {"Context", int64(c.Context), 1 << 30}, {"BlockSize", int64(c.BlockSize), 1 << 12},
		{"Sequences", int64(c.Sequences), 1 << 20}, {"CacheBytes", c.CacheBytes, 1 << 50},
	} {
		if f.v < 0 || f.v > f.most {
			return fmt.Errorf("cpu config: %s is %d, want 0 for the default or up to %d", f.name, f.v, f.most)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	or := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.Threads, max(1, min(runtime.GOMAXPROCS(0)-1, 4)))
	or(&c.BlockSize, 16)
	or(&c.Sequences, 8)
	if c.CacheBytes == 0 {
		c.CacheBytes = 1 << 30
	}
	return c
}
