// Package kernel holds the inner loops of the forward pass: products of packed matrices with
// activation vectors, attention over a paged cache, normalisation, rotation, softmax. It
// works on slices of numbers, without models, threads or caches.
//
// Two guarantees shape the code. First, every result is one fixed-order computation of its own inputs. No bit of it
// depends on the number of vectors that are multiplied at once, on the rows of a call, or on the processor's
// instructions. So each function exists in plain Go, which defines the result; vector instructions compute the same,
// and tests compare the bits. If instructions round a product and a sum once, plain Go does so with fma; other
// floating-point products have explicit float32 conversions, which by the language's definition prevent fusing.
// Second, nothing here allocates, except an Input or an Attention when it grows.
//
// # Products
//
//  1. Pack converts a matrix of the file to tiles, once.
//  2. Input.Load converts vectors to the form for the matrix's type.
//  3. Matrix.Mul computes any rows with any vectors, tile by tile.
//
// F32, F16 and BF16 are multiplied with the vectors' own floats, column after column. All other
// types are multiplied with vectors rounded to 8 bits in blocks of 32, each with
// its scale, as ggml does for Q8_0. The sum of 32 products, with the weights' integer scales of
// K-quants, is an integer below 2^24 and exact in any order; scales are applied at
// the end of each block (plainInts defines the order).
//
// # Tiles
//
// A tile is 16 rows. So a vector register holds weights of four rows (NEON), eight (AVX2) or
// sixteen (AVX-512), a sum never crosses a register's lanes, and every load of weights serves several
// vectors. It has as many bytes as the rows in the file; Q4_K has 2.8 % and Q5_K 2.3 %
// more, for integer scales of one byte, and MXFP4 5.9 %. Missing rows of the last tile are zeros. Within a
// tile blocks follow in the order of columns; r is a row of 0…15, c a column of the block
// or part.
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
// All processors share this layout. The assembly is made of macros: tile_amd64.s for AVX2 and tile_arm64.s for NEON, four
// vectors at a time or one, and tile512_amd64.s for AVX-512, eight, four or one. The file of the same name that ends in
// .h has the functions, and is included once for each number of vectors.
//
// # Attention
//
// Queries that share a kv head, of several heads and of several tokens, are computed eight at a
// time: each block of keys and values is read from memory once for eight. Keys are
// transposed: a register holds one dimension of eight or sixteen positions. Values are one position's
// dimensions. So no sum crosses a register's lanes here either. The comment of Attention defines the
// order of the sums.
//
// # Processors
//
// Features returns the instructions in use; the environment variable ROUSE_CPU limits them.
// AVX-512 means VNNI too. Without such a processor its kernels are tested on an
// emulated one, by make deep PART=avx512 (internal/emulate).
//
// On arm64 all functions use NEON, which every such processor has. Products with 8-bit
// activations also need its products of four bytes (dotprod: Armv8.4, many since 8.2, all of Apple's), and are plain
// Go without. These kernels are tested on emulated processors, with and without, by make deep PART=neon.
//
// All functions are safe for many goroutines on disjoint outputs. The caller guarantees the lengths:
// a slice that is too short panics.
package kernel
