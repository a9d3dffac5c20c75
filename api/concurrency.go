package api

import "strconv"

// Concurrency returns how many requests the runtime runs at once, and the setting or default that the number comes
// from. An option or variable of the runtime wins, then the default of its kind, then 8.
//
// vLLM's own default is 128 to 1024 and SGLang's up to 4096, depending on the device. Rouse uses 64, so that further
// requests start another instance instead of queueing in the server. llama-server and Ollama, where each slot takes
// memory, are given the function's number. Ray Serve's max_ongoing_requests is part of its application.
func (rt Runtime) Concurrency() (n int, by string) {
	settings := []string{"--max-num-seqs", "--max-seqs", "--max-running-requests", "OLLAMA_NUM_PARALLEL"}
	if rt.Kind == RuntimeLlamaCpp { // other programs use these option names for other things
		settings = []string{"--parallel", "-np", "LLAMA_ARG_N_PARALLEL"}
	}
	for _, name := range settings {
		if n := rt.number(name); n > 0 {
			if rt.Kind == RuntimeVLLM { // the limit is per data-parallel rank
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

// number returns the value of an option or a variable; 0 if it is unset or no number.
func (rt Runtime) number(name string) int {
	text, _ := rt.option(name)
	n, _ := strconv.Atoi(text)
	return n
}
