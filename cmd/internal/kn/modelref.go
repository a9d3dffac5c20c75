package kn

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/names"
)

// shipped is in Rouse's own image.
const shipped = "pico"

// images are those of model servers. The engine's is Rouse's own; Ray Serve and commands need the user's.
var images = map[string]string{
	api.RuntimeVLLM:     "vllm/vllm-openai:v0.30.0",
	api.RuntimeSGLang:   "lmsysorg/sglang:v0.5.18",
	api.RuntimeOllama:   "ollama/ollama:0.35.1",
	api.RuntimeLlamaCpp: "ghcr.io/ggml-org/llama.cpp:server",
}

// choose determines what serves a model. runtime may be empty; own: the image is the user's, which may contain models.
//
//  1. A named runtime interprets the reference itself.
//  2. Paths: only an image of the user's own has files before its pod exists.
//  3. The model that ships with Rouse, and GGUF files, by URL or as hubs' repositories, are the engine's.
//  4. ollama://NAME is Ollama's.
//  5. ORG/NAME and hf://ORG/NAME are vLLM's.
//  6. Nothing else is guessed.
func choose(ref, runtime string, own bool) (kind, model string, err error) {
	if runtime != "" && !slices.Contains(api.RuntimeKinds, runtime) {
		return "", "", fmt.Errorf("--runtime %s: want one of %s%s", runtime, strings.Join(api.RuntimeKinds, ", "), meant(runtime, api.RuntimeKinds))
	}
	local := strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "~") || strings.HasPrefix(ref, "file:") || strings.HasPrefix(ref, "/")
	switch {
	case local && !(own && strings.HasPrefix(ref, "/")): // 2.
		return "", "", fmt.Errorf("--model %s: a file of this machine is in no pod: give a reference that a pod can fetch (https://, hf://, s3://, oci://), or an image of your own that has it (--image) and its path there", ref)
	case isHub(ref): // 3.
		f, err := config.ForModel(ref, "")
		if err != nil {
			return "", "", fmt.Errorf("--model: %w", err)
		}
		return cmp.Or(runtime, api.RuntimeEngine), f.Runtime.Model, nil
	case runtime != "": // 1.
		return runtime, ref, nil
	case ref == shipped, isGGUF(ref): // 3.
		return api.RuntimeEngine, ref, nil
	case strings.HasPrefix(ref, "ollama://"): // 4.
		return api.RuntimeOllama, ref, nil
	case isRepository(strings.TrimPrefix(ref, "hf://")): // 5.
		return api.RuntimeVLLM, ref, nil
	}
	return "", "", unknown(ref) // 6.
}

// isHub reports whether ref has the form hf.co/ORG/NAME:QUANT.
func isHub(ref string) bool {
	plain := strings.TrimPrefix(ref, "https://")
	return strings.HasPrefix(plain, "hf.co/") || strings.HasPrefix(plain, "huggingface.co/") && !isGGUF(ref)
}

func isGGUF(ref string) bool {
	plain, _, _ := strings.Cut(ref, "#")
	plain, query, _ := strings.Cut(plain, "?")
	return strings.HasSuffix(strings.ToLower(plain), ".gguf") || strings.Contains(strings.ToLower(query), ".gguf")
}

// isRepository reports whether text is ORG/NAME[@REVISION].
func isRepository(text string) bool {
	org, name, found := strings.Cut(text, "/")
	return found && org != "" && name != "" && !strings.ContainsAny(text, " :?#") && !strings.Contains(name, "/")
}

func unknown(ref string) error {
	scheme, _, isURL := strings.Cut(ref, "://")
	switch {
	case strings.Contains(ref, " "):
		return fmt.Errorf("--model %q: a reference has no blanks", ref)
	case isURL && slices.Contains([]string{"http", "https", "s3", "oci", "hf"}, scheme):
		return fmt.Errorf("--model %s: nothing says what serves it: say --runtime, such as engine for GGUF files or vllm for a folder of weights", ref)
	case isURL:
		return fmt.Errorf("--model %s: nobody fetches %s://: want https, hf, s3, oci or ollama", ref, scheme)
	case names.Distance(ref, shipped, 2) <= 2:
		return fmt.Errorf("--model %s: there is no such model; did you mean %s?", ref, shipped)
	}
	return fmt.Errorf("--model %s: a name alone is never fetched; did you mean ollama://%[1]s, or ORG/%[1]s of a hub? `--runtime command` takes it as the name that a server of your own has", ref)
}

func meant(word string, of []string) string {
	if best := names.Nearest(word, 1+len(word)/2, of...); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

func (c *creator) imageOf(ctx context.Context, kind string) (string, error) {
	if kind == api.RuntimeEngine {
		return c.ownImage(ctx)
	}
	if image := images[kind]; image != "" {
		return image, nil
	}
	return "", fmt.Errorf("the runtime %s has no image of its own: say --image; without it there are %s and %s", kind, api.RuntimeEngine, strings.Join(slices.Sorted(maps.Keys(images)), ", "))
}
