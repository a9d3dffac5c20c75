//go:build amd64 || arm64

package kernel

// quantizeVector is quantizeRow if it can, and reports whether it did.
func quantizeVector(q []int8, blocks []block, x []float32) bool {
	if using == generic || len(blocks) == 0 {
		return false
	}
	quantizeAsm(&q[:32*len(blocks)][0], &blocks[0], &x[:32*len(blocks)][0], len(blocks))
	return true
}

// n is above 0.
//
//go:noescape
func quantizeAsm(q *int8, b *block, x *float32, n int)
