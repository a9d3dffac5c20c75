package door

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"
)

// Follow rereads a front door's file whenever it changes, and passes its clusters to declare, until ctx ends. An
// invalid or missing file is logged and changes nothing. Only the clusters are applied: other fields take effect when
// the server restarts. It polls every interval, and a change must be seen twice before it counts: the file may be
// half written.
func Follow(ctx context.Context, path string, interval time.Duration, declare func([]Declaration) error, log *slog.Logger) {
	taken, err := os.ReadFile(path)
	last := taken
	fault := "" // the last logged error of the file
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
		var f fileFormat
		if err == nil {
			f, err = parse(raw)
		}
		if err == nil && f.Clusters == nil { // the file may be truncated
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
