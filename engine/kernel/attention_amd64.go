package kernel

// The assembly: one query, or four whose scores and weights are Span apart. It works on
// n blocks, stride bytes apart in the cache; mix1 on rows positions of each.

func scores1(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int) {
	if using == avx512 {
		scores1AVX512(dst, q, keys, blocks, n, stride, d)
	} else {
		scores1AVX2(dst, q, keys, blocks, n, stride, d)
	}
}

func scores4(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int) {
	if using == avx512 {
		scores4AVX512(dst, q, keys, blocks, n, stride, d)
	} else {
		scores4AVX2(dst, q, keys, blocks, n, stride, d)
	}
}

func mix1(acc, w *float32, values *uint16, blocks *int32, n, stride, d, rows int) {
	if using == avx512 {
		mix1AVX512(acc, w, values, blocks, n, stride, d, rows)
	} else {
		mix1AVX2(acc, w, values, blocks, n, stride, d, rows)
	}
}

func mix4(acc, w *float32, values *uint16, blocks *int32, n, stride, d int) {
	if using == avx512 {
		mix4AVX512(acc, w, values, blocks, n, stride, d)
	} else {
		mix4AVX2(acc, w, values, blocks, n, stride, d)
	}
}

//go:noescape
func scores1AVX2(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func scores4AVX2(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func mix1AVX2(acc, w *float32, values *uint16, blocks *int32, n, stride, d, rows int)

//go:noescape
func mix4AVX2(acc, w *float32, values *uint16, blocks *int32, n, stride, d int)

//go:noescape
func scores1AVX512(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func scores4AVX512(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func mix1AVX512(acc, w *float32, values *uint16, blocks *int32, n, stride, d, rows int)

//go:noescape
func mix4AVX512(acc, w *float32, values *uint16, blocks *int32, n, stride, d int)
