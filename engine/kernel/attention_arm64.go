package kernel

// The assembly: one query, or four whose scores and weights are Span apart. It works on
// n blocks, stride bytes apart in the cache; mix1 on rows positions of each.

//go:noescape
func scores1(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func scores4(dst, q *float32, keys *uint16, blocks *int32, n, stride, d int)

//go:noescape
func mix1(acc, w *float32, values *uint16, blocks *int32, n, stride, d, rows int)

//go:noescape
func mix4(acc, w *float32, values *uint16, blocks *int32, n, stride, d int)
