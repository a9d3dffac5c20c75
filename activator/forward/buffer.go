package forward

import "sync"

// smallBuffer is what an answer is read into at first.
const smallBuffer = 16 << 10

// Buffers of that size are pooled; larger ones are left to the garbage collector.
var smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}

func giveBack(b *[]byte) {
	if cap(*b) == smallBuffer {
		smallBuffers.Put(b)
	}
}
