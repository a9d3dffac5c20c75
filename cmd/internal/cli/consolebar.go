package cli

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// startBar shows progress once a start takes long. The caller holds c.mu.
func (c *console) startBar(s api.InstanceStatus) {
	if !c.terminal {
		return
	}
	b := c.bars[s.Instance]
	if b == nil {
		b = &bar{shown: render.NewBar(c.out), stop: make(chan struct{}), done: make(chan struct{}), most: c.loads[s.Function]}
		c.bars[s.Instance] = b
		go c.redraw(b)
	}
	b.status = s
}

// redraw shows a bar until its start ends.
func (c *console) redraw(b *bar) {
	defer close(b.done)
	wait := time.NewTimer(barAfter)
	defer wait.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-wait.C:
		}
		c.mu.Lock()
		select {
		case <-b.stop:
		default:
			c.draw(b)
		}
		c.mu.Unlock()
		wait.Reset(barEvery)
	}
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

// draw draws a bar. The caller holds c.mu.
func (c *console) draw(b *bar) {
	b.shown.Draw(fmt.Sprintf("          %s: %s", b.status.Function.Name(), b.status.Stage), b.share(time.Now()))
}

// clearBars makes room for a line. The caller holds c.mu.
func (c *console) clearBars() {
	for _, b := range c.bars {
		b.shown.Clear()
	}
}

// endBar removes a bar. The caller holds c.mu.
func (c *console) endBar(id api.InstanceID) {
	if b := c.bars[id]; b != nil {
		delete(c.bars, id)
		close(b.stop)
		b.shown.Clear()
	}
}
