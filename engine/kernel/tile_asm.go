//go:build amd64 || arm64

package kernel

// intArgs has the first vector's x and b, the next are xs and bs bytes further on; n is the number of blocks.
type intArgs struct {
	acc   *float32
	w     *byte
	x     *int8
	xs    int
	b     *block
	bs, n int
}

func intTile(f func(intArgs), cols int) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		f(intArgs{&acc[0], &tile[0], &in.ints[t*in.stride], in.stride, &in.blocks[t*in.blockStride], in.blockStride * 16, in.cols / cols})
	}
}

// n of floatArgs is the number of columns.
type floatArgs struct {
	acc   *float32
	w     *byte
	x     *float32
	xs, n int
}

func floatTile(f func(floatArgs)) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		f(floatArgs{&acc[0], &tile[0], &in.floats[t*in.stride], in.stride * 4, in.cols})
	}
}
