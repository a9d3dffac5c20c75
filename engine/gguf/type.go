package gguf

import "fmt"

// Type is a tensor's number format, with ggml's numbering.
type Type uint32

// The formats that can be decoded and written.
//
//nolint:staticcheck // the names are ggml's own
const (
	F32  Type = 0  // IEEE 754 single
	F16  Type = 1  // IEEE 754 half
	Q4_0 Type = 2  // blocks of 32, 18 bytes: scale, 4 bits a value; symmetric
	Q4_1 Type = 3  // blocks of 32, 20 bytes: scale and minimum, 4 bits
	Q5_0 Type = 6  // blocks of 32, 22 bytes: scale, 5 bits; symmetric
	Q5_1 Type = 7  // blocks of 32, 24 bytes: scale and minimum, 5 bits
	Q8_0 Type = 8  // blocks of 32, 34 bytes: a half scale d, 32 signed bytes q; x = d·q
	Q2_K Type = 10 // blocks of 256, 84 bytes: 16 groups with scale and minimum, 2 bits
	Q3_K Type = 11 // blocks of 256, 110 bytes: 16 groups with scale, 3 bits
	Q4_K Type = 12 // blocks of 256, 144 bytes: 8 groups with scale and minimum, 4 bits
	Q5_K Type = 13 // blocks of 256, 176 bytes: 8 groups with scale and minimum, 5 bits
	Q6_K Type = 14 // blocks of 256, 210 bytes: 16 groups with scale, 6 bits
	BF16 Type = 30 // the upper half of a single

	IQ4_NL Type = 20 // blocks of 32, 18 bytes: scale, codes of 4 bits for unequal steps
	IQ4_XS Type = 23 // blocks of 256, 136 bytes: 8 groups with scale, codes as in IQ4_NL
	MXFP4  Type = 39 // blocks of 32, 17 bytes: a power of two, floats of 4 bits
)

// Values in a block, bytes of a block.
//
//nolint:staticcheck // the names are ggml's own
const (
	Q8Block = 32
	Q8Bytes = 34
	KBlock  = 256 // of Q2_K … Q6_K

	Q4_0Bytes = 18
	Q4_1Bytes = 20
	Q5_0Bytes = 22
	Q5_1Bytes = 24
	Q2_KBytes = 84
	Q3_KBytes = 110
	Q4_KBytes = 144
	Q5_KBytes = 176
	Q6_KBytes = 210
)

// layout is bytes per block of values.
type layout struct {
	name   string
	values int
	bytes  int
}

// layouts is ggml's type table (ggml.c, type_traits), without withdrawn numbers.
var layouts = map[Type]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, Q8_0: {"Q8_0", Q8Block, Q8Bytes}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, Q4_0Bytes}, Q4_1: {"Q4_1", 32, Q4_1Bytes}, Q5_0: {"Q5_0", 32, Q5_0Bytes}, Q5_1: {"Q5_1", 32, Q5_1Bytes},
	Q2_K: {"Q2_K", KBlock, Q2_KBytes}, Q3_K: {"Q3_K", KBlock, Q3_KBytes}, Q4_K: {"Q4_K", KBlock, Q4_KBytes},
	Q5_K: {"Q5_K", KBlock, Q5_KBytes}, Q6_K: {"Q6_K", KBlock, Q6_KBytes}, 9: {"Q8_1", 32, 36}, 15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74}, 18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50},
	IQ4_NL: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82}, IQ4_XS: {"IQ4_XS", 256, 136},
	24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, MXFP4: {"MXFP4", 32, 17},
}

// String returns ggml's name, or "type N".
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns the number of values in a block: 1 without blocks, 0 for unknown types.
func (t Type) Block() int { return layouts[t].values }

// RowBytes returns the size of n values, a whole number of blocks.
func (t Type) RowBytes(n int) (int, error) {
	l, ok := layouts[t]
	if !ok {
		return 0, fmt.Errorf("tensor type %d is unknown to this reader", uint32(t))
	}
	if n < 0 || n%l.values != 0 {
		return 0, fmt.Errorf("%s stores values in blocks of %d, and a row has %d", l.name, l.values, n)
	}
	blocks := n / l.values
	if blocks > maxInt/l.bytes {
		return 0, fmt.Errorf("%d values of %s do not fit in memory", n, l.name)
	}
	return blocks * l.bytes, nil
}

const maxInt = int(^uint(0) >> 1)

// Tensor is an array in a file. Dims[0] is the row length; a matrix of n inputs to m outputs has Dims [n, m]. Data is
// the file's memory: read only, little endian, valid until Close, aligned as the file if mapped.
type Tensor struct {
	Name string
	Dims []int
	Type Type
	Data []byte
}

// Len returns the number of values.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// tensorBytes refuses sizes that overflow.
func tensorBytes(t Type, dims []int) (int, error) {
	if len(dims) == 0 || len(dims) > maxDims {
		return 0, fmt.Errorf("a tensor has 1 to %d dimensions, not %d", maxDims, len(dims))
	}
	for i, d := range dims {
		if d <= 0 {
			return 0, fmt.Errorf("dimension %d is %d, want at least 1", i, d)
		}
	}
	size, err := t.RowBytes(dims[0])
	if err != nil {
		return 0, err
	}
	count := dims[0]
	for _, d := range dims[1:] {
		if size > maxInt/d || count > maxInt/d {
			return 0, fmt.Errorf("dimensions %v overflow", dims)
		}
		size *= d
		count *= d
	}
	return size, nil
}
