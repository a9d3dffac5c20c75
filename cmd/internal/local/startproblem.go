package local

import (
	"fmt"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// startProblem says why a function would not start now, or "". It is declared all the same: a file, a program or a GPU may come later.
func (m *machine) startProblem(f api.Function) string {
	var against []string
	add := func(format string, args ...any) { against = append(against, fmt.Sprintf(format, args...)) }
	if (f.Runtime.Kind == api.RuntimeEngine || f.Runtime.Kind == api.RuntimeLlamaCpp && f.Runtime.Endpoint == "") && noGGUF(f.Runtime.Model) {
		add("its model %s is no GGUF file that can be read: fetch or copy it again", f.Runtime.Model)
	}
	if why := NoProgram(f); why != "" {
		add("%s", why)
	}
	if m.host.Capacity > 0 && f.Memory.Host > m.host.Capacity {
		add("it needs %s of host memory and models may use %s (--memory)", f.Memory.Host, m.host.Capacity)
	}
	if n := len(m.gpus); f.Memory.Devices > n {
		gpus := "GPUs"
		if f.Memory.Devices == 1 {
			gpus = "GPU"
		}
		add("it needs %d %s and this machine has %d", f.Memory.Devices, gpus, n)
	}
	return strings.Join(against, "; ")
}

// noGGUF is false for a folder. It must not reveal what is there: a front door may have named it.
func noGGUF(model string) bool {
	if model == "" || model == pico.Name || strings.Contains(model, "://") {
		return false
	}
	if info, err := os.Stat(model); err == nil && !info.Mode().IsRegular() {
		return false
	}
	is, err := runtime.IsGGUF(model)
	return err != nil || !is
}

// NoProgram says which program that an instance of f starts is missing, or "".
func NoProgram(f api.Function) string {
	for _, words := range [][]string{runtime.Command(f.Runtime), f.Handler} {
		if len(words) == 0 {
			continue
		}
		if _, err := runtime.FindProgram(words[0], f.Runtime.Env); err != nil {
			return fmt.Sprintf("its program %s is not there, not in PATH, or not executable", words[0])
		}
	}
	return ""
}
