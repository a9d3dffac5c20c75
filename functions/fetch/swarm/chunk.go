package swarm

// The chunks of a file are a mebibyte at least, and so many at most until they have the largest size: the log of a file
// stays small, and so does what is sent again after a fault.
const (
	minChunk  = 1 << 20
	maxChunk  = 4 << 20
	fewChunks = 1024
	// MinSize is the size from which a file is worth sharing.
	MinSize = 2 * minChunk
	// maxSize bounds a file, and so what a log may hold.
	maxSize = 1 << 40
)

// ChunkSize is the size of the chunks of a file, but for the last one. It follows from the file's size, so that
// all nodes cut alike.
func ChunkSize(size int64) int64 {
	c := int64(minChunk)
	for c < maxChunk && size > c*fewChunks {
		c *= 2
	}
	return c
}

// layout is how a file is cut.
type layout struct{ size, chunk int64 }

func (l layout) count() int { return int((l.size + l.chunk - 1) / l.chunk) }

// span is where chunk i begins, and how long it is.
func (l layout) span(i int) (at, n int64) {
	at = int64(i) * l.chunk
	return at, min(l.chunk, l.size-at)
}
