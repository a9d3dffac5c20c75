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

// GPU describes the GPU as functions declare it.
type GPU struct {
	// Is: there is one. Apple's are not accounted for: Devices is 0 then, else 1.
	Is      bool
	Devices int
}

// FindGPU looks for a GPU on this machine, once.
var FindGPU = sync.OnceValue(func() GPU {
	if devices, _ := inventory.Discover(context.Background(), inventory.Config{}); len(devices) > 1 { // the first is the host's memory
		return GPU{true, 1}
	}
	return GPU{Is: Metal}
})

// Metal reports whether this machine has an Apple GPU.
const Metal = runtime.GOOS == "darwin" && runtime.GOARCH == "arm64"

// ProcessorOnly says, for a machine with a GPU, why our engine runs a function on the processor; empty: it does not.
func ProcessorOnly(f api.Function) string {
	if f.Runtime.Kind != api.RuntimeEngine || f.Runtime.Model == pico.Name || f.Memory.Devices > 0 {
		return ""
	}
	return "processor only: our engine does not use the GPU of this machine; llama-server or ollama in PATH would"
}

// onGPU has an installed runtime that uses the GPU serve what our engine would run on the processor. gpu is nil if none
// may be used.
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

func devices(gpu func() GPU) int {
	if gpu == nil {
		return 0
	}
	return gpu().Devices
}
