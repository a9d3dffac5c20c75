package catalog

import (
	"context"
	"os/exec"
	"runtime"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/engine/pico"
)

// GPU is one that a runtime of GGUF files uses, as far as functions say it.
type GPU struct {
	// Is says that there is one. Of Apple's nobody keeps an account: Devices is 0 then, else 1.
	Is      bool
	Devices int
}

// FindGPU looks for one on this machine, once.
var FindGPU = sync.OnceValue(func() GPU {
	if devices, _ := inventory.Discover(context.Background(), inventory.Config{}); len(devices) > 1 { // the first is the host's memory
		return GPU{true, 1}
	}
	return GPU{Is: Metal}
})

// Metal says whether this machine has a GPU of Apple's.
const Metal = runtime.GOOS == "darwin" && runtime.GOARCH == "arm64"

// ProcessorOnly says of a function, on a machine with a GPU, that our engine computes it on the processor; empty: it does not.
func ProcessorOnly(f api.Function) string {
	if f.Runtime.Kind != api.RuntimeEngine || f.Runtime.Model == pico.Name || f.Memory.Devices > 0 {
		return ""
	}
	return "processor only: our engine does not use the GPU of this machine; llama-server or ollama in PATH would"
}

// onGPU has a model that our engine would compute on the processor served by a runtime that uses the GPU, where one is installed. gpu
// is nil where none may be used.
func onGPU(f api.Function, gpu func() GPU) api.Function {
	if gpu == nil || ProcessorOnly(f) == "" || !gpu().Is {
		return f
	}
	for _, by := range [][2]string{{"llama-server", api.RuntimeLlamaCpp}, {"ollama", api.RuntimeOllama}} {
		if installed(by[0]) {
			f.Runtime.Kind, f.Memory.Devices = by[1], gpu().Devices
			break
		}
	}
	return f
}

func installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// devices is how many GPUs a runtime that uses one is declared to need.
func devices(gpu func() GPU) int {
	if gpu == nil {
		return 0
	}
	return gpu().Devices
}
