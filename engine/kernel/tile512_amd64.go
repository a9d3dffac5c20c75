package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

var avx512Kernels = [...]kernels{
	gguf.F32:   upTo8(floatTile(mulF32z1), floatTile(mulF32z4), floatTile(mulF32z8)),
	gguf.F16:   upTo8(floatTile(mulF16z1), floatTile(mulF16z4), floatTile(mulF16z8)),
	gguf.BF16:  upTo8(floatTile(mulBF16z1), floatTile(mulBF16z4), floatTile(mulBF16z8)),
	gguf.Q8_0:  upTo8(intTile(mulQ80z1, 32), intTile(mulQ80z4, 32), intTile(mulQ80z8, 32)),
	gguf.Q4_0:  upTo8(intTile(mulQ40z1, 32), intTile(mulQ40z4, 32), intTile(mulQ40z8, 32)),
	gguf.MXFP4: upTo8(intTile(mulMXz1, 32), intTile(mulMXz4, 32), intTile(mulMXz8, 32)),
	gguf.Q4_K:  upTo8(intTile(mulQ4Kz1, 256), intTile(mulQ4Kz4, 256), intTile(mulQ4Kz8, 256)),
	gguf.Q5_K:  upTo8(intTile(mulQ5Kz1, 256), intTile(mulQ5Kz4, 256), intTile(mulQ5Kz8, 256)),
	gguf.Q6_K:  upTo8(intTile(mulQ6Kz1, 256), intTile(mulQ6Kz4, 256), intTile(mulQ6Kz8, 256)),
}

func upTo8(one, four, eight tileFunc) kernels {
	return kernels{one: func(acc []float32, tile []byte, in *Input, t int) {
		for ; len(acc) >= 4*Tile; t += 4 {
			four(acc, tile, in, t)
			acc = acc[4*Tile:]
		}
		for ; len(acc) > 0; t++ {
			one(acc, tile, in, t)
			acc = acc[Tile:]
		}
	}, many: eight, few: 7, group: 8}
}

//go:noescape
func mulF32z1(a floatArgs)

//go:noescape
func mulF32z4(a floatArgs)

//go:noescape
func mulF32z8(a floatArgs)

//go:noescape
func mulF16z1(a floatArgs)

//go:noescape
func mulF16z4(a floatArgs)

//go:noescape
func mulF16z8(a floatArgs)

//go:noescape
func mulBF16z1(a floatArgs)

//go:noescape
func mulBF16z4(a floatArgs)

//go:noescape
func mulBF16z8(a floatArgs)

//go:noescape
func mulQ80z1(a intArgs)

//go:noescape
func mulQ80z4(a intArgs)

//go:noescape
func mulQ80z8(a intArgs)

//go:noescape
func mulQ40z1(a intArgs)

//go:noescape
func mulMXz1(a intArgs)

//go:noescape
func mulQ40z4(a intArgs)

//go:noescape
func mulMXz4(a intArgs)

//go:noescape
func mulQ40z8(a intArgs)

//go:noescape
func mulMXz8(a intArgs)

//go:noescape
func mulQ4Kz1(a intArgs)

//go:noescape
func mulQ4Kz4(a intArgs)

//go:noescape
func mulQ4Kz8(a intArgs)

//go:noescape
func mulQ5Kz1(a intArgs)

//go:noescape
func mulQ5Kz4(a intArgs)

//go:noescape
func mulQ5Kz8(a intArgs)

//go:noescape
func mulQ6Kz1(a intArgs)

//go:noescape
func mulQ6Kz4(a intArgs)

//go:noescape
func mulQ6Kz8(a intArgs)
