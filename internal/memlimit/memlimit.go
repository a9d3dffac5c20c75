// Package memlimit keeps a process within its container's memory limit.
//
// The kernel kills a container that exceeds its limit. Go's garbage collector does not know that limit and lets the
// heap grow to a multiple of the memory in use. With GOMEMLIMIT set, it collects earlier.
package memlimit

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/rouse-dev/rouse/api"
)

// share is the heap's share of the container's memory; the rest is for memory that the runtime does not count.
const share = 0.9

// Set sets Go's memory limit from the container's limit, if there is one. $GOMEMLIMIT wins. It returns the limit in
// effect; 0: none. It must be called once, before the process serves.
func Set() api.Bytes {
	// It fails without a control group or a limit; then no limit is set.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(share), memlimit.WithProvider(memlimit.FromCgroup))
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return api.Bytes(limit)
}
