package runtime

import (
	"errors"
	"strings"
)

// hopeless are what model servers say, in lower case, of what another start does not
// change: each entry is the parts of one line, in their order.
var hopeless = [][]string{
	{"model architectures [", "are not supported"},                   // vLLM, SGLang
	{"does not recognize this architecture"},                         // transformers, in both
	{"has no vllm implementation", "is not compatible with vllm"},    // vLLM
	{"is not a local folder and is not a valid model identifier"},    // transformers: there is no such model
	{"safetensorerror: error while deserializing"},                   // a file that is cut off, or something else
	{"unknown model architecture"},                                   // llama.cpp, Ollama
	{"unsupported model architecture"}, {"unsupported architecture"}, // Ollama
	{"invalid magic"}, {"failed to open gguf file"}, {"invalid file magic"}, // llama.cpp, Ollama
	{"unrecognized arguments: "}, {"error: invalid argument: "}, // Python, llama.cpp: an option that it does not have
}

// Hopeless returns the first line of what a model server says that tells of something that
// another start does not change, such as a model that it can't use; empty: there is none.
func Hopeless(output string) string {
	for line := range strings.Lines(output) {
		for _, parts := range hopeless {
			if inOrder(strings.ToLower(line), parts) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func inOrder(line string, parts []string) bool {
	for _, part := range parts {
		_, rest, found := strings.Cut(line, part)
		if !found {
			return false
		}
		line = rest
	}
	return true
}

// Permanent says that the server says so of its model.
func (e *statusError) Permanent() bool { return Hopeless(e.message) != "" }

// Permanent says whether err, or one that it wraps, says of itself that another try
// fails too.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}
