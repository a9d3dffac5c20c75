package worker

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// smallWork is the logits per goroutine below which another one does not pay.
const smallWork = 1 << 16

// each calls do(0) to do(n-1), in parallel if work, in logits, is large.
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
