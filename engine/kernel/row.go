package kernel

// Add adds v to acc.
func Add(acc, v []float32) {
	v = v[:len(acc)]
	n := addVector(acc, v)
	for i := n; i < len(acc); i++ {
		acc[i] += v[i]
	}
}

// Scale multiplies x by f.
func Scale(x []float32, f float32) {
	n := scaleVector(x, f)
	for i := n; i < len(x); i++ {
		x[i] *= f
	}
}

// Axpy adds p·v to acc, each sum rounded once.
func Axpy(acc []float32, p float32, v []float32) {
	v = v[:len(acc)]
	n := axpyVector(acc, p, v)
	for i := n; i < len(acc); i++ {
		acc[i] = fma(p, v[i], acc[i])
	}
}
