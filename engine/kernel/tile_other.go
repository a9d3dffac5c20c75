//go:build !amd64 && !arm64

package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

func vectorKernels(gguf.Type) (kernels, bool) { return kernels{}, false }

func quantizeVector([]int8, []block, []float32) bool { return false }
