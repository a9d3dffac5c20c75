package kernel

func quantizeVector([]int8, []block, []float32) bool { return false }
