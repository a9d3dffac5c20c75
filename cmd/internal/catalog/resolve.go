package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
	"github.com/rouse-dev/rouse/internal/names"
)

// Resolve declares a function for a model reference. store may be nil; a runtime that uses the GPU is preferred to our
// engine.
//
//  1. A path, a URL or pico is [config.ForModel]'s. ollama:// is the store's model if it has it, and nothing is
//     fetched.
//  2. An existing file, such as ./chat.gguf without ./, is that file.
//  3. Other names are looked up in the store.
//  4. Else the error suggests what may be meant.
//
// A prefix NAME= names the function.
func Resolve(ref, origin string, store *Store, gpu func() GPU) (api.Function, error) {
	name, model := config.CutName(ref)
	if printable(ref) != ref {
		return api.Function{}, fmt.Errorf("the model's reference %.80q has control characters", ref)
	}
	inLibrary, isLibrary := strings.CutPrefix(model, "ollama://")
	bare := !isLibrary && !config.IsReference(model) && model != pico.Name
	if !isLibrary && (!bare || isFile(model)) { // 1., 2.
		f, err := config.ForModel(ref, origin)
		return onGPU(f, gpu), err
	}
	if isLibrary {
		model = inLibrary
	}
	if store != nil { // 1., 3.
		m, near, err := store.Find(model)
		switch {
		case err == nil:
			f, err := m.Function(origin, gpu)
			if err != nil {
				return f, fmt.Errorf("%s, which Ollama has here: %w", m.Name, err)
			}
			if name != "" {
				return config.Named(f, name)
			}
			return f, nil
		case bare && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoName):
			return api.Function{}, fmt.Errorf("%s, which Ollama has here: %w", model, err)
		case bare && len(near) > 0:
			return api.Function{}, fmt.Errorf("the model %q does not exist here: did you mean %s?", model, strings.Join(near, " or "))
		}
	}
	if isLibrary {
		f, err := config.ForModel(ref, origin)
		if !installed("ollama") { // its weights are a GGUF file
			f.Runtime.Kind = api.RuntimeEngine
			return onGPU(f, gpu), err
		}
		f.Memory.Devices = devices(gpu)
		return f, err
	}
	return api.Function{}, meant(model)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var (
	libraryForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]*(:[A-Za-z0-9._-]+)?$`)
	hubForm     = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9._-]+)?$`)
)

// Missing is the error of a model that is not here.
type Missing struct {
	// Library is the reference that may be meant in Ollama's library; empty: none.
	Library string

	text string
}

func (e *Missing) Error() string { return e.text }

// meant says how to write a name that looks like another program's.
func meant(model string) *Missing {
	e := &Missing{text: fmt.Sprintf("the model %q does not exist here: ", model)}
	for _, with := range []string{model + ".gguf", model + ".GGUF"} {
		if isFile(with) {
			e.text += "did you mean ./" + with + "?"
			return e
		}
	}
	switch info, err := os.Stat(model); {
	case err == nil && info.IsDir():
		e.text = "a folder is no model: name a GGUF file in it, or serve all with --models-dir " + model
	case names.Distance(model, pico.Name, 2) <= 2:
		e.text += "did you mean " + pico.Name + ", which ships with Rouse?"
	case libraryForm().MatchString(model):
		e.Library = "ollama://" + model
		e.text += "did you mean " + e.Library + "?\nA file is ./FILE.gguf, a model of a hub hf.co/ORG/NAME."
	case hubForm().MatchString(model):
		e.text += "did you mean hf.co/" + model + ", or ollama://" + model + "?"
	default:
		e.text += "want a GGUF file, hf.co/ORG/NAME[:QUANT], ollama://NAME, a URL, or pico, which ships with Rouse"
	}
	return e
}
