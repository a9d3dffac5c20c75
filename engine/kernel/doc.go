// Package kernel holds the inner loops of the forward pass: products of packed matrices with
// activation vectors, attention over a paged cache, normalisation, rotation, softmax. It
// knows slices of numbers and nothing of models, threads or caches.
//
// Two promises shape the code. Every result is one fixed-order computation of its own
// inputs: how many vectors are multiplied at once, which rows a call covers, and which
// instructions the processor has never change a bit of it. So each function exists in plain Go,
// which says what is computed; vector instructions for one processor compute the same, and
// tests compare the bits. Where instructions round a product and a sum once, plain Go does so
// with fma; elsewhere floating-point products stand in explicit float32 conversions, which the
// language defines to forbid fusing. And nothing here allocates, except an Input or an
// Attention when it grows.
//
// # Products
//
//  1. Pack brings a matrix of the file into tiles, once.
//  2. Input.Load brings vectors into the form that the matrix's type multiplies with.
//  3. Matrix.Mul computes any rows with any vectors, tile by tile.
//
// F32, F16 and BF16 are multiplied with the vectors' own floats, column after column. All other
// types are multiplied with vectors rounded to 8 bits in blocks of 32, each with
// its scale, as ggml does for Q8_0. The sum of 32 products, with the weights' integer scales of
// K-quants, is an integer below 2^24 and exact in whatever order; scales come in at
// the end of each block (plainInts says in which order).
//
// # Tiles
//
// A tile is 16 rows, so that a vector register holds weights of four rows (NEON), eight (AVX2) or
// sixteen (AVX-512), a sum never crosses a register's lanes, and every load of weights serves several
// vectors. It has as many bytes as the rows in the file, Q4_K 2.8 % and Q5_K 2.3 %
// more, for integer scales of one byte. The rows that a last tile lacks are zeros. Within a
// tile blocks follow in the order of columns; r is a row of 0…15, c a column of the block
// or part.
//
//	F32   64 bytes a column      4·r: the value
//	F16   32 bytes a column      2·r: the value; BF16 as well
//	Q8_0  544 bytes, 32 columns  c/4·64 + 4·r + c%4: q+128, one byte
//	                             512 + 2·r: scale, a half
//	Q4_0  288 bytes, 32 columns  c/8·64 + 4·r + c%4: q+8, 4 bits: the lower where c%8 < 4
//	                             256 + 2·r: scale, a half
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
// All processors share this layout. The program gen writes the assembly: tile_amd64.s for AVX2 and
// tile_arm64.s for NEON, four vectors at a time or one, and tile512_amd64.s for AVX-512, eight, four or one.
//
// # Attention
//
// Queries that share a kv head, of several heads and of several tokens, are computed eight at a
// time, so that each block of keys and values is read from memory once for all of them. Keys lie
// transposed: a register holds one dimension of eight or sixteen positions, values one position's
// dimensions, and no sum crosses a register's lanes here either. Attention says in which
// order the sums are made.
//
// # Processors
//
// Features tells which instructions are in use; the environment variable ROUSE_CPU limits them.
// AVX-512 means VNNI too. Its kernels are tested where no such processor is at hand on an
// emulated one, by make deep PART=avx512 (internal/emulate).
//
// On arm64 all functions use NEON, which every such processor has; but products with 8-bit
// activations also need its products of four bytes (dotprod: Armv8.4, many since 8.2, all of Apple's), and are plain
// Go without. These kernels are tested on emulated processors, with and without, by make deep PART=neon.
//
// All functions are safe for many goroutines on disjoint outputs. Lengths are the
// caller's promise: a slice too short panics.
package kernel
