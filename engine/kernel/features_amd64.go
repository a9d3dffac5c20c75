package kernel

import "golang.org/x/sys/cpu"

const (
	avx2   level = iota + 1 // with FMA and F16C
	avx512                  // F, BW, DQ, VL and VNNI
)

var levelNames = [...]string{generic: "generic", avx2: "avx2", avx512: "avx512"}

func supported() level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !hasF16C():
		return generic
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI:
		return avx512
	}
	return avx2
}

// hasF16C is here because x/sys/cpu does not report it.
func hasF16C() bool
