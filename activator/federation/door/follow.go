package door

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/internal/disk"
)

// Follow rereads a front door's file whenever it changes, and passes its clusters to declare, until ctx ends, as
// [disk.Follow] does. Only the clusters are applied: other fields take effect when the server restarts.
func Follow(ctx context.Context, path string, interval time.Duration, declare func([]Declaration) error, log *slog.Logger) {
	taken, _ := disk.ReadText(path) // one that is missing counts when it comes
	disk.Follow(ctx, path, interval, disk.ReadText, taken, func(raw []byte) (int, error) {
		f, err := parse(raw)
		if err == nil && f.Clusters == nil { // the file may be truncated
			err = errors.New("it has no clusters: want clusters: and a list, which may be []")
		}
		if err == nil {
			err = declare(f.Clusters)
		}
		return len(f.Clusters), err
	}, "clusters", log)
}
