package door

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/internal/disk"
)

// Follow passes the clusters of a front door's file to declare whenever it changes, until ctx ends. Other fields take
// effect when the server restarts.
func Follow(ctx context.Context, path string, interval time.Duration, declare func([]Declaration) error, log *slog.Logger) {
	taken, _ := disk.ReadText(path) // a missing one counts when it comes
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
