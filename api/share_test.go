package api

import "testing"

// TestDeviceShare checks that a function without declared device memory takes the share in its runtime's options.
func TestDeviceShare(t *testing.T) {
	gpu := Memory{Devices: 1}
	for _, tc := range []struct {
		name   string
		rt     Runtime
		memory Memory
		want   float64
	}{
		{"vLLM's default", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-model-len", "8192"}}, gpu, 0.9},
		{"an option", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu-memory-utilization", "0.45"}}, gpu, 0.45},
		{"as one word, with underscores", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu_memory_utilization=0.3"}}, gpu, 0.3},
		{"the last one counts", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu-memory-utilization=0.3", "--gpu-memory-utilization", "0.6"}}, gpu, 0.6},
		{"no number", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu-memory-utilization", "$(SHARE)"}}, gpu, 0},
		{"nothing behind it", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu-memory-utilization"}}, gpu, 0},
		{"more than all", Runtime{Kind: RuntimeVLLM, Args: []string{"--gpu-memory-utilization", "9"}}, gpu, 0},
		{"a cache of so many bytes", Runtime{Kind: RuntimeVLLM, Args: []string{"--kv-cache-memory-bytes", "1G"}}, gpu, 0},
		{"a server that runs already", Runtime{Kind: RuntimeVLLM, Endpoint: "http://127.0.0.1:8000"}, gpu, 0},
		{"SGLang says it", Runtime{Kind: RuntimeSGLang, Args: []string{"--mem-fraction-static", "0.7"}}, gpu, 0.7},
		{"SGLang finds it out itself", Runtime{Kind: RuntimeSGLang}, gpu, 0},
		{"any command", Runtime{Kind: RuntimeCommand, Command: []string{"serve"}}, gpu, 0},
		{"declared", Runtime{Kind: RuntimeVLLM}, Memory{Devices: 1, PerDevice: GiB}, 0},
		{"no device", Runtime{Kind: RuntimeVLLM}, Memory{}, 0},
	} {
		f := Function{Name: "default/f", Runtime: tc.rt, Memory: tc.memory}.WithDefaults()
		if f.Memory.Share != tc.want {
			t.Errorf("%s: %g, want %g", tc.name, f.Memory.Share, tc.want)
		}
	}
}
