//go:build !linux

package cpu

import (
	"sync/atomic"
	"time"
)

// sleepUntil sleeps for a moment: here no process can wake another.
func sleepUntil(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(min(d, time.Millisecond)) }

func wakeAll(*atomic.Uint32) {}
