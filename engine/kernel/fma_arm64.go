package kernel

// fma returns x·y + z, rounded once to float32: the compiler makes one instruction of it, and TestFMA
// sees to it that it does.
func fma(x, y, z float32) float32 { return x*y + z }
