package runtime

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
)

// hopeless are what model servers say, in lower case, of what another start does not
// change: each entry is the parts of one line, in their order. What may be for want of
// memory, of a network, or of another GPU is not among them.
var hopeless = [][]string{
	// vLLM and SGLang, and transformers in both: the model, its files and its quantization.
	{"model architectures [", "are not supported"},
	{"has no vllm implementation", "is not compatible with vllm"},
	{"has no sglang implementation", "is not compatible with sglang"},
	{"does not recognize this architecture"}, {"unrecognized model in"},
	{"is not a local folder and is not a valid model identifier"}, // there is no such model
	{"you are trying to access a gated repo"},
	{"does not appear to have a file named config.json"}, {"cannot find any model weights with"},
	{"safetensorerror: error while deserializing"}, // a file that is cut off, or something else
	{"unknown quantization method"}, {"quantization method specified in the model config", "does not match"},
	{"is not supported for quantization method"},

	// llama.cpp, and Ollama, which has it inside.
	{"unknown model architecture"}, {"unsupported model architecture"}, {"unsupported architecture"},
	{"invalid magic"}, {"invalid file magic"}, {"failed to open gguf file"},
	{"gguf_init_from_file", "failed to read"}, // cut off, or of a version that it does not know
	{"this gguf file is version"}, {"bad gguf version"}, {"ggufv1 is no longer supported"}, {"has invalid ggml type"},
	{"error loading model hyperparameters: "}, {"error loading model vocabulary: "},
	{"error loading model: ", "missing tensor '"}, {"error loading model: ", "wrong number of tensors"},
	{"error loading model: ", "tensor '", "has wrong "}, {"error loading model: ", "tensor '", "not found"},
	{"error loading model: ", "is not within the file bounds"}, {"error loading model: ", "has invalid data"},
	{"error loading model: invalid model"}, {"error loading model: corrupted model"}, {"error loading model: ", "invalid split"},

	// Ollama's own.
	{"supplied file was not in gguf format"}, {"offset+size", "exceeds file size"},
	{"is not supported by your version of ollama"}, {"may be incompatible with your version of ollama"},

	{noSleepMode}, // to an option of the function's: ours is left out then, see [Yielder]

	// An option that it does not have, or not with that value: Python's, llama.cpp.
	{"unrecognized arguments: "}, {"error: argument -"}, {"error: the following arguments are required: "},
	{"error: invalid argument: "}, {"error while handling argument "},
}

// unreadable is how Ollama answers of a file of which it can't even read what it is: why is in its log. A runner of
// Ollama's says the same where there is no memory for a model, but not in an answer.
const unreadable = "unable to load model: "

// Hopeless returns the first line of what a model server says that tells of something that
// another start does not change, such as a model that it can't use; empty: there is none.
func Hopeless(output string) string { return saying(output, hopeless) }

// saying returns the first line that has all parts of one of what.
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

// Permanent says that the server says so of its model.
func (e *statusError) Permanent() bool {
	return strings.HasPrefix(e.message, unreadable) || Hopeless(e.message) != ""
}

// Permanent says whether err, or one that it wraps, says of itself that another try
// fails too.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// engineDead is vLLM's answer once its engine has died, in lower case: it ends some seconds later.
const engineDead = "enginecore encountered an issue"

// Dying says that the server is about to end, and answers nothing else until then.
func (e *statusError) Dying() bool {
	return e.status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.message), engineDead)
}

// Dying says whether err, or one that it wraps, says so of itself.
func Dying(err error) bool {
	var d interface{ Dying() bool }
	return errors.As(err, &d) && d.Dying()
}

// lasting is an error that another try ends with too.
type lasting struct{ error }

// Unwrap returns the error.
func (e lasting) Unwrap() error { return e.error }

// Permanent is true.
func (e lasting) Permanent() bool { return true }

// unusable is what is wrong with a model that was declared: the next try finds the same, but where the system
// fails to read what is there.
func unusable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return lasting{err}
}
