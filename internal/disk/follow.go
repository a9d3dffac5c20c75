package disk

import (
	"bytes"
	"context"
	"log/slog"
	"time"
)

// Follow calls apply with a file's content whenever that changes, until ctx ends. taken is the content that was applied
// last. apply returns how many there are of what the file declares. An invalid or missing file is logged and changes
// nothing. It polls every interval: no notification covers all the ways in which a file in a mounted volume is replaced.
// A change must be seen twice before it counts: the file may be half written.
func Follow(ctx context.Context, path string, interval time.Duration, read func(path string) ([]byte, error), taken []byte, apply func(raw []byte) (n int, err error), what string, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, fault := taken, "" // the last content, and the last logged error
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		raw, err := read(path)
		settled := err != nil || bytes.Equal(raw, last)
		last = raw
		if !settled || err == nil && bytes.Equal(raw, taken) {
			continue
		}
		n := 0
		if err == nil {
			n, err = apply(raw)
		}
		switch {
		case err == nil:
			taken, fault = raw, ""
			log.Info("the "+what+" were read again", "file", path, what, n)
		case err.Error() != fault:
			fault = err.Error()
			log.Error("the "+what+" stay as they were", "file", path, "error", err)
		}
	}
}
