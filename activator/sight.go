package activator

import (
	"time"

	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/api"
)

// Sight decides which instances may see which clients' requests. It is called while a function is locked: it must not
// block or call the activator. Clients are identified as in [peer.Peer].
type Sight interface {
	// Sees returns a function that reports whether an instance of f may see a client's requests; nil: each may see
	// all.
	Sees(f api.FunctionName) func(client string, i api.InstanceID) bool
	// Bars returns why no instance, present or future, may see a client's requests; nil: one may.
	Bars(f api.FunctionName, client string) *api.Error
}

// sees is [Sight.Sees] for f. The caller holds mu.
func (f *function) sees() func(client string, i api.InstanceID) bool {
	if f.a.deps.Sight == nil {
		return nil
	}
	return f.a.deps.Sight.Sees(f.name)
}

// of returns a filter of the instances that a client's requests may go to; nil: any.
func of(sees func(client string, i api.InstanceID) bool, client string) func(api.InstanceID) bool {
	if sees == nil {
		return nil
	}
	return func(i api.InstanceID) bool { return sees(client, i) }
}

// first returns the entry that gets the next slot, or a refusal. If not every instance may see every request, it is
// the first entry that may use a free slot. The caller holds mu.
func (f *function) first(sees func(client string, i api.InstanceID) bool, now time.Time) *hold.Entry[*slot] {
	if sees == nil && f.queue.Picky() == 0 {
		return f.queue.First()
	}
	return f.queue.FirstOf(func(e *hold.Entry[*slot]) bool {
		return f.set.FreeFor(now, e.Want, of(sees, e.Client)) || f.strays(e.Want, now)
	})
}

// barred returns why c may not be sent to any instance. The caller holds mu.
func (f *function) barred(c *call) error {
	if f.a.deps.Sight == nil {
		return nil
	}
	if err := f.a.deps.Sight.Bars(f.name, c.req.peer.Client); err != nil {
		return err
	}
	return nil
}
