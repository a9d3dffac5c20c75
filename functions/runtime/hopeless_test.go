package runtime_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Messages of model servers that can't start, word for word, and whether another start ends the same way.
func TestHopeless(t *testing.T) {
	for _, line := range []string{
		"ValueError: Model architectures ['MambaForCausalLM'] are not supported for now. Supported architectures: dict_keys(['A'])",
		"  Value error, Model architectures ['PaddleOCRVLForConditionalGeneration'] are not supported for now. [type=value_error, input_value=ArgsKwargs]",
		"(EngineCore pid=9) ValueError: CLIPModel has no vLLM implementation and the Transformers implementation is not compatible with vLLM. Try setting VLLM_USE_V1=0.",
		"ValueError: GraniteMoeHybridForCausalLM has no SGlang implementation and the Transformers implementation is not compatible with SGLang.",
		"ValueError: The checkpoint you are trying to load has model type `x` but Transformers does not recognize this architecture.",
		"ValueError: Unrecognized model in /m. Should have a `model_type` key in its config.json.",
		"OSError: org/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
		"You are trying to access a gated repo.",
		"OSError: /m does not appear to have a file named config.json. Checkout 'https://huggingface.co//m/tree/None' for available files.",
		"RuntimeError: Cannot find any model weights with `/m`",
		"safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
		"ValueError: Unknown quantization method: int8. Must be one of ['awq', 'gptq'].",
		"  Value error, Quantization method specified in the model config (compressed-tensors) does not match the quantization method specified in the `quantization` argument (awq).",
		"ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
		"llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'gemma9'",
		"0.00.147.118 E llama_model_load: error loading model: unknown model architecture: ''",
		"gguf_init_from_file_impl: invalid magic characters: 'GGUX', expected 'GGUF'",
		"gguf_init_from_file_impl: failed to read header",
		"gguf_init_from_file_impl: failed to read tensor info",
		"gguf_init_from_file_impl: this GGUF file is version 99 but this software only supports up to version 3",
		"gguf_init_from_file_impl: tensor 'a' has invalid ggml type 93 (NONE)",
		"llama_model_load: error loading model: error loading model hyperparameters: key not found in model: llama.context_length",
		"llama_model_load: error loading model: error loading model vocabulary: cannot find tokenizer vocab in model file",
		"llama_model_load: error loading model: missing tensor 'output_norm.weight'",
		"llama_model_load: error loading model: done_getting_tensors: wrong number of tensors; expected 12, got 11",
		"llama_model_load: error loading model: check_tensor_dims: tensor 'output.weight' has wrong shape; expected 64, 100, got 64, 99, 1, 1",
		"llama_model_load: error loading model: tensor 'a' data is not within the file bounds, model is corrupted or incomplete",
		"llama_model_load: error loading model: corrupted model: 12 tensors expected but 11 found",
		"make the model x: /api/create answers 400: supplied file was not in GGUF format",
		`tensor "blk.0.ffn_down.weight" offset+size (217120) exceeds file size (206698)`,
		"llama runner process has terminated: this model is not supported by your version of Ollama. You may need to upgrade",
		"vllm: error: unrecognized arguments: --max-model-length 9",
		"api_server.py: error: argument --dtype: invalid choice: 'int3' (choose from 'auto', 'half')",
		"launch_server.py: error: the following arguments are required: --model-path",
		"error: invalid argument: --no-such",
		`error while handling argument "-c": stoi`,
	} {
		if got := runtime.Hopeless("loading\n" + line + "\nTraceback\n"); got != strings.TrimSpace(line) {
			t.Errorf("%q: got %q, want that another start ends the same way", line, got)
		}
	}
	for _, line := range []string{
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.10 GiB is free.",
		"ValueError: Free memory on device (2.1/79.25 GiB) on startup is less than desired GPU memory utilization (0.9, 71.33 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
		"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
		"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
		"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
		"llama_model_load: error loading model: unable to allocate CUDA0 buffer",
		"llama_model_load: error loading model: mmap failed: Cannot allocate memory",
		"llama_model_load: error loading model: read error: Input/output error",
		"llama_model_load_from_file_impl: failed to load model",
		"panic: unable to load model: /m/blobs/sha256-0",
		"model requires more system memory (5.6 GiB) than is available (3.1 GiB)",
		"llama runner process has terminated: cudaMalloc failed: out of memory",
		"OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
		"ValueError: Invalid repository ID or local directory specified: 'org/m'.",                                                      // vLLM's for any failure, also of a network
		"ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.", // another GPU may support it
		"Failed to load generation config for org/m: org/m does not appear to have a file named generation_config.json.",
		"torch.distributed.DistNetworkError: The client socket has timed out",
	} {
		if got := runtime.Hopeless(line); got != "" {
			t.Errorf("%q: got %q, want that another start may end well", line, got)
		}
	}
}

// A running Ollama that reports an unusable model is asked once.
func TestHopelessOllamaIsAskedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		path, message string
		status        int
	}{
		"unreadable": {"/api/generate", "unable to load model: /root/.ollama/models/blobs/sha256-0", 500},
		"tensor":     {"/api/generate", "llama runner process has terminated: error loading model: missing tensor 'output_norm.weight'\\nllama_model_load_from_file_impl: failed to load model", 500},
		"no GGUF":    {"/api/generate", "supplied file was not in GGUF format", 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFake(t).on("POST /api/show", 200, "{}").on("POST "+tt.path, tt.status, `{"error":"`+tt.message+`"}`)
			r := adapter(t, api.Runtime{Kind: api.RuntimeOllama, Model: "x", Endpoint: s.endpoint()})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := runtime.Await(ctx, r, s.endpoint(), nil, nil)
			if !runtime.Permanent(err) || !strings.Contains(err.Error(), strings.SplitN(tt.message, "\\n", 2)[0]) || strings.Contains(err.Error(), "{") {
				t.Errorf("got %v, want what it says, and that this lasts", err)
			}
			if n := slices.IndexFunc(s.calls, func(call string) bool { return strings.HasPrefix(call, "POST "+tt.path) }); n != len(s.calls)-1 {
				t.Errorf("it is asked on: %q", s.calls)
			}
		})
	}
}

// An invalid model is found before anything is started, and once.
func TestHopelessModels(t *testing.T) {
	dir := t.TempDir()
	bad := write(t, filepath.Join(dir, "bad.gguf"), "this is no model")
	for _, spec := range []api.Runtime{
		{Kind: api.RuntimeOllama, Model: bad},
		{Kind: api.RuntimeOllama, Model: "/none.gguf"},
		{Kind: api.RuntimeOllama, Model: "none:7b", Env: []string{"OLLAMA_MODELS=" + aStore(t, "registry.ollama.ai/library/qwen/0.5b")}},
		{Kind: api.RuntimeLlamaCpp, Model: "/none.gguf"},
		{Kind: api.RuntimeLlamaCpp, Model: t.TempDir()},
	} {
		spec.Command = []string{program(t, "server")}
		if _, err := adapter(t, spec).Launch(spec.Model); !runtime.Permanent(err) {
			t.Errorf("%s %s: got %v, want that this lasts", spec.Kind, spec.Model, err)
		}
	}
	if _, err := adapter(t, api.Runtime{Kind: api.RuntimeOllama, Model: bad, Command: []string{program(t, "server")}}).Launch(bad[:1] + strings.Repeat("x", 300)); err == nil || runtime.Permanent(err) {
		t.Errorf("got %v, want an error of the system's, which need not last", err)
	}
}
