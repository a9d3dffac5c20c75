package kernel

// Each function here computes a first part of its slices by vector instructions and tells how much;
// the callers compute the rest, to the same bits.

func narrowVector(dst []uint16, src []float32) int          { return 0 }
func widenVector(dst []float32, src []byte) int             { return 0 }
func siluVector(gate, up []float32) int                     { return 0 }
func geluVector(gate, up []float32) int                     { return 0 }
func softcapVector(x []float32, limit, inv float32) int     { return 0 }
func expSumVector(x []float32, top float32) (float32, bool) { return 0, false }
func maximumVector(x []float32, top *float32) int           { return 0 }
func normVector(out, x, w []float32, scale float32) int     { return 0 }
func squaresVector(l *[16]float64, x []float32) int         { return 0 }
func addVector(acc, v []float32) int                        { return 0 }
func scaleVector(x []float32, f float32) int                { return 0 }
func axpyVector(acc []float32, p float32, v []float32) int  { return 0 }
