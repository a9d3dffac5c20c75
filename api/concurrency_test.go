package api

import "testing"

// TestConcurrency checks that a function without a declared concurrency takes its server's.
func TestConcurrency(t *testing.T) {
	for _, tc := range []struct {
		name     string
		rt       Runtime
		declared int
		want     int
		by       string
	}{
		{"vLLM's option", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-num-seqs", "48"}}, 0, 48, "--max-num-seqs"},
		{"behind its own program, with underscores", Runtime{Kind: RuntimeVLLM, Command: []string{"vllm", "serve", "--max_num_seqs=5"}}, 0, 5, "--max-num-seqs"},
		{"the last one counts", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-num-seqs=4", "--max-num-seqs=9"}}, 0, 9, "--max-num-seqs"},
		{"for each replica", Runtime{Kind: RuntimeVLLM, Args: []string{"-dp", "2", "--max-num-seqs", "16"}}, 0, 32, "--max-num-seqs"},
		{"no number", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-num-seqs", "$(SEQS)"}}, 0, 64, "default for vllm"},
		{"nothing behind it", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-num-seqs"}}, 0, 64, "default for vllm"},
		{"a vLLM that runs already", Runtime{Kind: RuntimeVLLM, Endpoint: "http://127.0.0.1:8000"}, 0, 64, "default for vllm"},
		{"declared", Runtime{Kind: RuntimeVLLM, Args: []string{"--max-num-seqs", "48"}}, 3, 3, ""},
		{"SGLang's option, of all replicas", Runtime{Kind: RuntimeSGLang, Args: []string{"--max-running-requests", "20", "--dp-size", "2"}}, 0, 20, "--max-running-requests"},
		{"SGLang without", Runtime{Kind: RuntimeSGLang}, 0, 64, "default for sglang"},
		{"llama-server's slots", Runtime{Kind: RuntimeLlamaCpp, Args: []string{"-np", "2"}}, 0, 2, "-np"},
		{"llama-server's variable", Runtime{Kind: RuntimeLlamaCpp, Env: []string{"LLAMA_ARG_N_PARALLEL=6"}}, 0, 6, "LLAMA_ARG_N_PARALLEL"},
		{"llama-server chooses itself", Runtime{Kind: RuntimeLlamaCpp, Args: []string{"--parallel", "-1"}}, 0, 8, "default"},
		{"Ollama's variable, the last one", Runtime{Kind: RuntimeOllama, Env: []string{"OLLAMA_NUM_PARALLEL=1", "OLLAMA_NUM_PARALLEL=3"}}, 0, 3, "OLLAMA_NUM_PARALLEL"},
		{"Ollama is told", Runtime{Kind: RuntimeOllama}, 0, 8, "default"},
		{"the engine's option", Runtime{Args: []string{"--max-seqs=2"}}, 0, 2, "--max-seqs"},
		{"the engine's default", Runtime{Kind: RuntimeEngine, Args: []string{"--max-num-seqs", "0"}}, 0, 32, "default for engine"},
		{"Ray Serve", Runtime{Kind: RuntimeRayServe}, 0, 8, "default"},
		{"a command with vLLM's option", Runtime{Kind: RuntimeCommand, Command: []string{"python3", "serve.py", "--max-num-seqs", "7"}}, 0, 7, "--max-num-seqs"},
		{"a command with an option of many programs", Runtime{Kind: RuntimeCommand, Command: []string{"serve", "--parallel", "7"}}, 0, 8, "default"},
		{"no model server", Runtime{Kind: RuntimeHTTP, Command: []string{"serve"}}, 0, 8, "default"},
	} {
		f := Function{Name: "default/f", Runtime: tc.rt, Concurrency: tc.declared}.WithDefaults()
		if f.Concurrency != tc.want || f.ConcurrencyBy != tc.by {
			t.Errorf("%s: %d by %q, want %d by %q", tc.name, f.Concurrency, f.ConcurrencyBy, tc.want, tc.by)
		}
		if again := f.WithDefaults(); again.Concurrency != f.Concurrency || again.ConcurrencyBy != f.ConcurrencyBy {
			t.Errorf("%s: a second time it is %d by %q", tc.name, again.Concurrency, again.ConcurrencyBy)
		}
	}
}
