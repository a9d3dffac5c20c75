package cpu

import (
	"fmt"
	"runtime"
)

// Config sets limits. The zero value is good for most uses.
type Config struct {
	// Threads is how many goroutines compute, at most. 0: min(GOMAXPROCS, 4).
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

// Validate refuses negative values.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		v    int64
	}{{"Threads", int64(c.Threads)}, {"Context", int64(c.Context)}, {"BlockSize", int64(c.BlockSize)},
		{"Sequences", int64(c.Sequences)}, {"CacheBytes", c.CacheBytes}} {
		if f.v < 0 {
			return fmt.Errorf("cpu config: %s is %d, want 0 for the default or more", f.name, f.v)
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
	or(&c.Threads, min(runtime.GOMAXPROCS(0), 4))
	or(&c.BlockSize, 16)
	or(&c.Sequences, 8)
	if c.CacheBytes == 0 {
		c.CacheBytes = 1 << 30
	}
	return c
}
