package activator

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

// A request for an API that a runtime certainly lacks is refused before it wakes an instance. If the API depends on
// the runtime's version, options or model, only the runtime can decide. The same holds for functions whose runtime is
// unknown here: commands, Ray Serve applications, images that choose their runtime, and handlers, which see requests
// first.

// certain are the kinds of runtimes whose APIs are known.
var certain = []string{api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeLlamaCpp, api.RuntimeOllama}

// lacksPath refuses a request for a path that f's runtime certainly lacks.
func lacksPath(f *queue.Function, path string) *api.Error {
	spec := f.Spec()
	kind, handled := spec.Runtime.Kind, len(spec.Handler) > 0
	known, _ := api.FindPath("", path)
	kinds := known.Runtimes
	if kinds == nil || handled || !slices.Contains(certain, kind) || slices.Contains(kinds, kind) {
		return nil
	}
	if instead := known.Instead; instead != "" {
		return &api.Error{Status: http.StatusNotImplemented, Code: api.CodeUnknownPath, NoRetry: true,
			Message: "the model runs on " + kind + ", which does not speak Ollama's API: instead of " + path + " use " + instead}
	}
	return &api.Error{Status: http.StatusNotFound, Code: api.CodeUnknownPath, NoRetry: true,
		Message: "the model runs on " + kind + ", which has no " + path + ": only " + strings.Join(kinds, ", ") + " may have it"}
}

// lacks returns the refusal of a request for a model; nil if the picked function, or another variant of the model,
// may have the path.
func (t *target) lacks(picked *queue.Function, path string) *api.Error {
	refused := lacksPath(picked, path)
	if refused != nil && slices.ContainsFunc(t.variants, func(v *target) bool { return lacksPath(v.first(), path) == nil }) {
		return nil
	}
	return refused
}
