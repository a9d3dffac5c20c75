package leader

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

const usageEvery = 10 * time.Second

func (l *leader) watchUsage(ctx context.Context) error {
	if len(l.cfg.DCGM) == 0 {
		return nil
	}
	dcgm := inventory.DCGM{URLs: l.cfg.DCGM}
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	trouble := ""
	for {
		seen, err := dcgm.Poll(ctx)
		switch {
		case err == nil:
			trouble = ""
		case ctx.Err() == nil && err.Error() != trouble:
			trouble = err.Error()
			l.log.Warn("what is used of GPUs can't be read: what was seen of them last stays", "error", err)
		}
		if len(seen) > 0 {
			l.core.ObserveUsage(seen)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
