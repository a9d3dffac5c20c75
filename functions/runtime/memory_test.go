package runtime

import (
	"testing"

	"github.com/rouse-dev/rouse/api"
)

func TestStillInUse(t *testing.T) {
	for line, want := range map[string]api.Bytes{
		"INFO 11-23 07:51:42 [gpu_worker.py:144] Sleep mode freed 30.45 GiB memory, 1.50 GiB memory is still in use.":            3 * api.GiB / 2,
		"(EngineCore pid=99) INFO 08-01 [gpu_worker.py:117] Sleep mode freed 71.25 GiB memory, 1.25 GiB memory is still in use.": 5 * api.GiB / 4,
		"Sleep mode (level=1) freed 30.45 GiB memory, 2.00 GiB memory is still in use.":                                          2 * api.GiB, // vLLM Ascend
		"Sleep mode freed -0.00 GiB memory, 63.00 GiB memory is still in use.":                                                   63 * api.GiB,
		"Sleep mode freed 1.00 GiB memory, 0.00 GiB memory is still in use.":                                                     0,
		"Sleep mode freed 30.45 GiB memory, -1.50 GiB memory is still in use.":                                                   -1,
		"Sleep mode freed 30.45 GiB memory, 1e9 GiB memory is still in use.":                                                     -1,
		"Sleep mode freed 30.45 GiB memory, 99999999999999999999.0 GiB memory is still in use.":                                  -1,
		"Sleep mode freed 30.45 GiB memory, 1.2.3 GiB memory is still in use.":                                                   -1,
		"a connection is still in use": -1,
		"":                             -1,
	} {
		got, said := StillInUse([]byte(line))
		if said != (want >= 0) || said && got != want {
			t.Errorf("%q: %s, %v; want %s", line, got, said, want)
		}
	}
}

func TestNoRoom(t *testing.T) {
	for output, want := range map[string]string{
		"INFO loading\nValueError: Free memory on device cuda:0 (40.0/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).\nbye": "ValueError: Free memory on device cuda:0 (40.0/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB":                                                                              "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
		"Call to wake_up method failed: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62":                                                  "Call to wake_up method failed: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
		"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory":                                    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
		"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.":                                                                      "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
		"fork/exec: cannot allocate memory": "",
		"OSError: no such model":            "",
	} {
		if got := NoRoom(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}
