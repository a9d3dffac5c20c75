//go:build amd64 || arm64

package kernel

// intTile calls assembly: x and b are the first vector's, the next are xs and bs bytes
// further on, n is the number of blocks.
func intTile(f func(acc *float32, w *byte, x *int8, xs int, b *block, bs, n int), cols int) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		f(&acc[0], &tile[0], &in.ints[t*in.stride], in.stride, &in.blocks[t*in.blockStride], in.blockStride*16, in.cols/cols)
	}
}

func floatTile(f func(acc *float32, w *byte, x *float32, xs, n int)) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		f(&acc[0], &tile[0], &in.floats[t*in.stride], in.stride*4, in.cols)
	}
}
