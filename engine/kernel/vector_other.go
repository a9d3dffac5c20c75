//go:build !amd64 && !arm64

package kernel

// Without vector code the callers compute everything.

func narrowVector([]uint16, []float32) int              { return 0 }
func siluVector(_, _ []float32) int                     { return 0 }
func geluVector(_, _ []float32) int                     { return 0 }
func softcapVector(_ []float32, _, _ float32) int       { return 0 }
func expSumVector(*lanes16, []float32, float32) int     { return 0 }
func maximumVector([]float32, *float32) int             { return 0 }
func normVector(_, _, _ []float32, _ float32) int       { return 0 }
func squaresVector(*[16]float64, []float32) int         { return 0 }
func addVector(_, _ []float32) int                      { return 0 }
func scaleVector([]float32, float32) int                { return 0 }
func axpyVector([]float32, float32, []float32) int      { return 0 }
func ropeHalvesVector(_, _, _, _ []float32) int         { return 0 }
func ropePairsVector(_, _, _ []float32) int             { return 0 }
func (*view) scoresVector(_, _ []float32, _ int) bool   { return false }
func (*view) mixVector(_, _ []float32, _ []window) bool { return false }
