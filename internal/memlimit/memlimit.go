// Package memlimit keeps a process within its container's memory.
//
// The kernel kills a container that exceeds its limit. Go's collector does not know that limit
// and lets the heap grow to a multiple of what is in use. With a limit of its own it collects
// earlier.
package memlimit

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/rouse-dev/rouse/api"
)

// share is how much of the container's memory the heap may have; the rest is for what the runtime does not count.
const share = 0.9

// Set gives Go's runtime the limit of the container that the process runs in, if it has
// one. $GOMEMLIMIT wins. It returns what the process may use, 0 if that has no bound.
// It is called once, before the process serves.
func Set() api.Bytes {
	// It fails where there is no control group and no limit in it: then there is none.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(share), memlimit.WithProvider(memlimit.FromCgroup))
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return api.Bytes(limit)
}
