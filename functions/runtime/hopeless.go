package runtime

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
)

// hopeless are messages of model servers, in lower case, about failures that recur at every start: each entry has the parts of one line,
// in order. Failures that may come from lack of memory, the network, or another GPU are excluded.
var hopeless = [][]string{
	// vLLM and SGLang, and transformers in both: the model, its files and its quantization.
	{"model architectures [", "are not supported"},
	{"has no vllm implementation", "is not compatible with vllm"},
	{"has no sglang implementation", "is not compatible with sglang"},
	{"does not recognize this architecture"}, {"unrecognized model in"},
	{"is not a local folder and is not a valid model identifier"}, // there is no such model
	{"you are trying to access a gated repo"},
	{"does not appear to have a file named config.json"}, {"cannot find any model weights with"},
	{"safetensorerror: error while deserializing"}, // a cut-off file, or another format
	{"unknown quantization method"}, {"quantization method specified in the model config", "does not match"},
	{"is not supported for quantization method"},

	// llama.cpp, and Ollama, which includes it.
	{"unknown model architecture"}, {"unsupported model architecture"}, {"unsupported architecture"},
	{"invalid magic"}, {"invalid file magic"}, {"failed to open gguf file"},
	{"gguf_init_from_file", "failed to read"}, // cut off, or of an unknown version
	{"this gguf file is version"}, {"bad gguf version"}, {"ggufv1 is no longer supported"}, {"has invalid ggml type"},
	{"error loading model hyperparameters: "}, {"error loading model vocabulary: "},
	{"error loading model: ", "missing tensor '"}, {"error loading model: ", "wrong number of tensors"},
	{"error loading model: ", "tensor '", "has wrong "}, {"error loading model: ", "tensor '", "not found"},
	{"error loading model: ", "is not within the file bounds"}, {"error loading model: ", "has invalid data"},
	{"error loading model: invalid model"}, {"error loading model: corrupted model"}, {"error loading model: ", "invalid split"},

	// Ollama's own.
	{"supplied file was not in gguf format"}, {"offset+size", "exceeds file size"},
	{"is not supported by your version of ollama"}, {"may be incompatible with your version of ollama"},

	{noSleepMode}, // for the function's own option; ours is left out then, see [Yielder]

	// An unknown option or a wrong value: Python's argparse, llama.cpp.
	{"unrecognized arguments: "}, {"error: argument -"}, {"error: the following arguments are required: "},
	{"error: invalid argument: "}, {"error while handling argument "},
}

// unreadable is Ollama's answer about a file whose format it can't read; the reason is in its log. A runner of Ollama's logs the same if
// a model does not fit into memory, but does not answer so.
const unreadable = "unable to load model: "

// Hopeless returns the first line of a model server's output about a failure that recurs at every start, such as an unusable model;
// empty: there is none.
func Hopeless(output string) string { return saying(output, hopeless) }

// saying returns the first line that has all parts of one entry.
func saying(output string, what [][]string) string {
	for line := range strings.Lines(output) {
		for _, parts := range what {
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

// Permanent reports whether the answer is about a failure that recurs at every start.
func (e *statusError) Permanent() bool {
	return strings.HasPrefix(e.message, unreadable) || Hopeless(e.message) != ""
}

// Permanent reports whether err, or one that it wraps, says that another attempt fails too.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// engineDead is vLLM's answer once its engine has died, in lower case; vLLM ends some seconds later.
const engineDead = "enginecore encountered an issue"

// Dying reports whether the server is about to end; until then all its answers are the same.
func (e *statusError) Dying() bool {
	return e.status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.message), engineDead)
}

// Dying reports whether err, or one that it wraps, is a dying server's answer.
func Dying(err error) bool {
	var d interface{ Dying() bool }
	return errors.As(err, &d) && d.Dying()
}

// lasting is an error that recurs at every attempt.
type lasting struct{ error }

// Unwrap returns the error.
func (e lasting) Unwrap() error { return e.error }

// Permanent returns true.
func (e lasting) Permanent() bool { return true }

// unusable marks an error of a declared model as permanent, unless the system failed to read an existing file.
func unusable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return lasting{err}
}
