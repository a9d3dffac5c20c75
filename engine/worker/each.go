package worker

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// smallWork is how many logits one goroutine looks at before a second is worth its start.
const smallWork = 1 << 16

// each calls do(0) to do(n-1), in parallel where the work, in logits, is worth it. The
// calls must not touch the same things.
func each(n, work int, do func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0), work/smallWork)
	if workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	run := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			do(i)
		}
	}
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(run)
	}
	run()
	others.Wait()
}
