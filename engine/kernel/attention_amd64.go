package kernel

func scores1(a attendArgs) {
	if using == avx512 {
		scores1AVX512(a)
	} else {
		scores1AVX2(a)
	}
}

func scores4(a attendArgs) {
	if using == avx512 {
		scores4AVX512(a)
	} else {
		scores4AVX2(a)
	}
}

func mix1(a attendArgs) {
	if using == avx512 {
		mix1AVX512(a)
	} else {
		mix1AVX2(a)
	}
}

func mix4(a attendArgs) {
	if using == avx512 {
		mix4AVX512(a)
	} else {
		mix4AVX2(a)
	}
}

//go:noescape
func scores1AVX2(a attendArgs)

//go:noescape
func scores4AVX2(a attendArgs)

//go:noescape
func mix1AVX2(a attendArgs)

//go:noescape
func mix4AVX2(a attendArgs)

//go:noescape
func scores1AVX512(a attendArgs)

//go:noescape
func scores4AVX512(a attendArgs)

//go:noescape
func mix1AVX512(a attendArgs)

//go:noescape
func mix4AVX512(a attendArgs)
