package main

import (
	"errors"
	"sync"
	"time"
)

// AtOnce calls do concurrently for each i below n; took has the returned times by i, in milliseconds.
func AtOnce(n int, do func(i int) (time.Duration, error)) (took []float64, err error) {
	took = make([]float64, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var d time.Duration
			d, errs[i] = do(i)
			took[i] = float64(d) / float64(time.Millisecond)
		})
	}
	all.Wait()
	return took, errors.Join(errs...)
}

// Flood has clients call do again and again for d, at least once each; took is in microseconds.
func Flood(d time.Duration, clients int, do func() error) (took []float64, perSecond float64, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards took and err
	began := time.Now()
	for range clients {
		all.Go(func() {
			var own []float64
			var failed error
			for failed == nil && (len(own) == 0 || time.Since(began) < d) {
				at := time.Now()
				if failed = do(); failed == nil {
					own = append(own, float64(time.Since(at))/float64(time.Microsecond))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if failed != nil {
				err = failed
			}
		})
	}
	all.Wait()
	return took, float64(len(took)) / time.Since(began).Seconds(), err
}
