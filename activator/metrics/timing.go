package metrics

import (
	"strconv"
	"time"
)

// Timing is the breakdown of a request's time.
type Timing struct {
	Hold  time.Duration // the total time in the queue
	Wake  time.Duration // the part of Hold in which no instance was awake
	Queue time.Duration // the rest of Hold: waiting for a free slot
	First time.Duration // from the last dispatch to the first byte
}

// Since returns how much longer t has waited than before.
func (t Timing) Since(before Timing) Timing {
	return Timing{Hold: t.Hold - before.Hold, Wake: t.Wake - before.Wake, Queue: t.Queue - before.Queue}
}

// String formats t as a Server-Timing header (W3C), in milliseconds with at most three decimals.
func (t Timing) String() string {
	b := make([]byte, 0, 80)
	for _, m := range []struct {
		name string
		d    time.Duration
	}{{"hold", t.Hold}, {"wake", t.Wake}, {"queue", t.Queue}, {"ttft", t.First}} {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, m.name...), ";dur="...)
		b = strconv.AppendFloat(b, float64(m.d.Microseconds())/1000, 'f', -1, 64)
	}
	return string(b)
}
