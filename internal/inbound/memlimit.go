package inbound

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// share is the heap's share of the container's memory; the rest is for memory that the runtime does not count.
const share = 0.9

// LimitMemory sets Go's memory limit from the container's limit, if there is one: the kernel kills a container that
// exceeds it, and the garbage collector does not know it. $GOMEMLIMIT wins. It returns the limit in effect, in bytes;
// 0: none. It must be called once, before the process serves.
func LimitMemory() int64 {
	// It fails without a control group or a limit; then no limit is set.
	_, _ = memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(share), memlimit.WithProvider(memlimit.FromCgroup))
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}
