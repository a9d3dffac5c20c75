package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

func vectorKernels(t gguf.Type) (kernels, bool) {
	if using < avx2 {
		return kernels{}, false
	}
	k := avx2Kernels[t]
	if using == avx512 {
		k = avx512Kernels[t]
	}
	return k, k.group > 0
}

var avx2Kernels = [...]kernels{
	gguf.F32:   {floatTile(mulF32x1), floatTile(mulF32x4), 1, 4},
	gguf.F16:   {floatTile(mulF16x1), floatTile(mulF16x4), 1, 4},
	gguf.BF16:  {floatTile(mulBF16x1), floatTile(mulBF16x4), 1, 4},
	gguf.Q8_0:  {intTile(mulQ80x1, 32), intTile(mulQ80x4, 32), 1, 4},
	gguf.Q4_0:  {intTile(mulQ40x1, 32), intTile(mulQ40x4, 32), 1, 4},
	gguf.MXFP4: {intTile(mulMXx1, 32), intTile(mulMXx4, 32), 1, 4},
	gguf.Q4_K:  {intTile(mulQ4Kx1, 256), intTile(mulQ4Kx4, 256), 1, 4},
	gguf.Q5_K:  {intTile(mulQ5Kx1, 256), intTile(mulQ5Kx4, 256), 1, 4},
	gguf.Q6_K:  {intTile(mulQ6Kx1, 256), intTile(mulQ6Kx4, 256), 1, 4},
}

//go:noescape
func mulF32x1(a floatArgs)

//go:noescape
func mulF32x4(a floatArgs)

//go:noescape
func mulF16x1(a floatArgs)

//go:noescape
func mulF16x4(a floatArgs)

//go:noescape
func mulBF16x1(a floatArgs)

//go:noescape
func mulBF16x4(a floatArgs)

//go:noescape
func mulQ80x1(a intArgs)

//go:noescape
func mulQ80x4(a intArgs)

//go:noescape
func mulQ40x1(a intArgs)

//go:noescape
func mulMXx1(a intArgs)

//go:noescape
func mulQ40x4(a intArgs)

//go:noescape
func mulMXx4(a intArgs)

//go:noescape
func mulQ4Kx1(a intArgs)

//go:noescape
func mulQ4Kx4(a intArgs)

//go:noescape
func mulQ5Kx1(a intArgs)

//go:noescape
func mulQ5Kx4(a intArgs)

//go:noescape
func mulQ6Kx1(a intArgs)

//go:noescape
func mulQ6Kx4(a intArgs)
