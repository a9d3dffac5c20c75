package cli

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// barAfter is the time after which a start gets a bar: quick ones need none.
const barAfter = 300 * time.Millisecond

// bar shows the progress of an instance's start.
type bar struct {
	*render.Bar
	status api.InstanceStatus // the last report; guarded by the console's mu
	most   time.Duration      // the expected duration; 0: unknown
}

// startBar shows progress once a start takes long. The caller holds c.mu.
func (c *console) startBar(s api.InstanceStatus) {
	if !c.terminal {
		return
	}
	b := c.bars[s.Instance]
	if b == nil {
		b = &bar{Bar: render.NewBar(c.out, &c.mu), most: c.loads[s.Function]}
		c.bars[s.Instance] = b
		b.Show(barAfter, func() (string, float64) {
			return fmt.Sprintf("          %s: %s", b.status.Function.Name(), b.status.Stage), b.share(time.Now())
		})
	}
	b.status = s
}

// share returns the completed share of a start: as reported by the instance, else estimated from the last start; 0 if
// unknown. It stays below 1.
func (b *bar) share(now time.Time) float64 {
	share := b.status.Progress
	if share == 0 && b.most > 0 {
		share = float64(now.Sub(b.status.Since)) / float64(b.most)
	}
	return max(0, min(share, 0.99))
}

// clearBars makes room for a line. The caller holds c.mu.
func (c *console) clearBars() {
	for _, b := range c.bars {
		b.Clear()
	}
}

// endBar removes a bar. The caller holds c.mu.
func (c *console) endBar(id api.InstanceID) {
	if b := c.bars[id]; b != nil {
		delete(c.bars, id)
		b.Hide()
	}
}
