package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

// Integers need dot products.
func vectorKernels(t gguf.Type) (kernels, bool) {
	if using == generic || using < dotprod && formats[t].integer {
		return kernels{}, false
	}
	k := neonKernels[t]
	return k, k.group > 0
}

var neonKernels = [...]kernels{
	gguf.F32:   {floatTile(mulF32n1), floatTile(mulF32n4), 1, 4},
	gguf.F16:   {floatTile(mulF16n1), floatTile(mulF16n4), 1, 4},
	gguf.BF16:  {floatTile(mulBF16n1), floatTile(mulBF16n4), 1, 4},
	gguf.Q8_0:  {intTile(mulQ80n1, 32), intTile(mulQ80n4, 32), 1, 4},
	gguf.Q4_0:  {intTile(mulQ40n1, 32), intTile(mulQ40n4, 32), 1, 4},
	gguf.MXFP4: {intTile(mulMXn1, 32), intTile(mulMXn4, 32), 1, 4},
	gguf.Q4_K:  {intTile(mulQ4Kn1, 256), intTile(mulQ4Kn4, 256), 1, 4},
	gguf.Q5_K:  {intTile(mulQ5Kn1, 256), intTile(mulQ5Kn4, 256), 1, 4},
	gguf.Q6_K:  {intTile(mulQ6Kn1, 256), intTile(mulQ6Kn4, 256), 1, 4},
}

//go:noescape
func mulF32n1(a floatArgs)

//go:noescape
func mulF32n4(a floatArgs)

//go:noescape
func mulF16n1(a floatArgs)

//go:noescape
func mulF16n4(a floatArgs)

//go:noescape
func mulBF16n1(a floatArgs)

//go:noescape
func mulBF16n4(a floatArgs)

//go:noescape
func mulQ80n1(a intArgs)

//go:noescape
func mulQ80n4(a intArgs)

//go:noescape
func mulQ40n1(a intArgs)

//go:noescape
func mulMXn1(a intArgs)

//go:noescape
func mulQ40n4(a intArgs)

//go:noescape
func mulMXn4(a intArgs)

//go:noescape
func mulQ4Kn1(a intArgs)

//go:noescape
func mulQ4Kn4(a intArgs)

//go:noescape
func mulQ5Kn1(a intArgs)

//go:noescape
func mulQ5Kn4(a intArgs)

//go:noescape
func mulQ6Kn1(a intArgs)

//go:noescape
func mulQ6Kn4(a intArgs)
