package kernel

// quantizeVector does what quantizeRow does, and tells whether it did.
func quantizeVector(q []int8, blocks []block, x []float32) bool {
	if using < avx2 || len(blocks) == 0 {
		return false
	}
	quantizeAVX2(&q[:32*len(blocks)][0], &blocks[0], &x[:32*len(blocks)][0], len(blocks))
	return true
}

// n is the number of blocks, above 0.
//
//go:noescape
func quantizeAVX2(q *int8, b *block, x *float32, n int)
