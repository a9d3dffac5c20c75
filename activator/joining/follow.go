package joining

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/rouse-dev/rouse/activator/clusters"
)

// Follow reads the clusters of a front door's file again whenever it changes, and has declare take them, until ctx ends. A
// file that is wrong, or gone, changes nothing, and is logged. Of a change it takes the clusters only: all else counts
// when the server starts anew. It looks every interval, and a change counts once it is the same twice: it may be half written.
func Follow(ctx context.Context, path string, interval time.Duration, declare func([]clusters.Declaration) error, log *slog.Logger) {
	taken, err := os.ReadFile(path)
	last := taken
	fault := "" // of the file, as it was last logged
	if err != nil {
		fault = err.Error()
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		raw, err := os.ReadFile(path)
		settled := err != nil || bytes.Equal(raw, last)
		last = raw
		if !settled || err == nil && bytes.Equal(raw, taken) {
			continue
		}
		var f file
		if err == nil {
			f, err = parse(raw)
		}
		if err == nil && f.Clusters == nil { // it may be cut short
			err = errors.New("it has no clusters: want clusters: and a list, which may be []")
		}
		if err == nil {
			err = declare(f.Clusters)
		}
		switch {
		case err == nil:
			taken, fault = raw, ""
			log.Info("the clusters were read again", "file", path, "clusters", len(f.Clusters))
		case err.Error() != fault:
			fault = err.Error()
			log.Error("the clusters stay as they were", "file", path, "error", err)
		}
	}
}
