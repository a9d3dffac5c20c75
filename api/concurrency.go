package api

import "strconv"

// Concurrency is how many requests the runtime runs at once by its own options or environment, else by its kind, else 8; by is the setting's name, or
// which default it is.
//
// The engine's default is its own. vLLM's own is 128 to 1024, and SGLang's up to 4096, by their device: with 64, further requests get another instance
// instead of a place in the server's queue. llama-server and Ollama, where each place takes memory, are told what the function has.
// Ray Serve's max_ongoing_requests is in its application.
func (rt Runtime) Concurrency() (n int, by string) {
	settings := []string{"--max-num-seqs", "--max-seqs", "--max-running-requests", "OLLAMA_NUM_PARALLEL"}
	if rt.Kind == RuntimeLlamaCpp { // other programs have other options of these names
		settings = []string{"--parallel", "-np", "LLAMA_ARG_N_PARALLEL"}
	}
	for _, name := range settings {
		if n := rt.number(name); n > 0 {
			if rt.Kind == RuntimeVLLM { // it is for each of these
				n *= max(1, rt.number("--data-parallel-size"), rt.number("-dp"))
			}
			return n, name
		}
	}
	switch rt.Kind {
	case RuntimeEngine:
		return 32, "default for engine"
	case RuntimeVLLM, RuntimeSGLang:
		return 64, "default for " + rt.Kind
	}
	return 8, "default"
}

// number is the value of an option or a variable; 0: it is none.
func (rt Runtime) number(name string) int {
	text, _ := rt.option(name)
	n, _ := strconv.Atoi(text)
	return n
}
