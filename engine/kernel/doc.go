// Package kernel holds the inner loops of the forward pass: products of packed matrices with activation vectors,
// attention over a paged cache, normalisation, rotation, softmax.
//
// Every result is one fixed-order computation of its own inputs: no bit depends on the number of vectors, on the rows
// of a call, or on the processor. Plain Go defines the result; vector instructions compute the same. If instructions
// round a product and a sum once, plain Go does so with fma; other floating-point products have explicit float32
// conversions, which prevent fusing. Nothing allocates, except an Input or an Attention when it grows.
//
// # Products
//
//  1. Pack converts a matrix of the file to tiles, once.
//  2. Input.Load converts vectors to the form for the matrix's type.
//  3. Matrix.Mul computes any rows with any vectors, tile by tile.
//
// F32, F16 and BF16 are multiplied with the vectors' own floats. All other types are multiplied with vectors rounded
// to 8 bits in blocks of 32, each with its scale, as ggml does for Q8_0. The sum of 32 products, with the integer
// scales of K-quants, is an integer below 2^24 and exact in any order; scales are applied at the end of each block.
//
// # Tiles
//
// A tile is 16 rows, so a sum never crosses a vector register's lanes. Missing rows of the last tile are zeros.
// Within a tile blocks follow in the order of columns; r is a row of 0…15, c a column of the block or part.
//
//	F32   64 bytes a column      4·r: the value
//	F16   32 bytes a column      2·r: the value; BF16 as well
//	Q8_0  544 bytes, 32 columns  c/4·64 + 4·r + c%4: q+128, one byte
//	                             512 + 2·r: scale, a half
//	Q4_0  288 bytes, 32 columns  c/8·64 + 4·r + c%4: q+8, 4 bits: the lower where c%8 < 4
//	                             256 + 2·r: scale, a half
//	MXFP4 288 bytes, 32 columns  as Q4_0, with a code for q+8; smaller scales than a half's are 0
//	Q4_K  2,368 bytes, 256 columns: a head and eight parts of 32 columns
//	      head, 64 bytes         2·r: scale, a half; 32 + 2·r: minimums' scale
//	      part, 288 bytes        0: q, 4 bits, as in Q4_0
//	                             256 + r: integer scale, one byte; 272 + r: integer minimum
//	Q5_K  2,880 bytes, 256 columns
//	      head, 64 bytes         as Q4_K
//	      part, 352 bytes        0: the low 4 bits of q, as in Q4_0
//	                             256 + 4·r + c%4: the fifth, in bit c/4
//	                             320 + r: integer scale; 336 + r: integer minimum
//	Q6_K  3,360 bytes, 256 columns
//	      head, 32 bytes         2·r: scale, a half
//	      part, 416 bytes        0: the low 4 bits of q+32, as in Q4_0
//	                             256 + c/16·64 + 4·r + c%4: the others, in bits c/4%4·2 and above
//	                             384 + 2·r + c/16: integer scale, one signed byte
//
// The assembly is made of macros: tile_amd64.s (AVX2) and tile_arm64.s (NEON), four vectors at a time or one, and
// tile512_amd64.s (AVX-512, VNNI), eight, four or one. The .h file of the same name has the functions, and is
// included once for each number of vectors. On arm64 products with 8-bit activations need dotprod, and are plain Go
// without. make deep PART=avx512 and PART=neon test on emulated processors.
//
// All functions are safe for many goroutines on disjoint outputs. A slice that is too short panics.
package kernel
