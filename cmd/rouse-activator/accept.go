package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/agent"
)

// acceptFlags select the functions that front doors may create in the cluster.
type acceptFlags struct {
	Functions []string `flag:"accept-functions" split:"" help:"functions that the front doors may have created in this cluster, as <patterns> of one namespace such as default/*: a function is code that runs here (default: those of ROUSE_ACCEPT_FUNCTIONS, or none)"`
	Images    []string `flag:"accept-images" split:"" help:"<RUNTIME=IMAGE> of the runtimes of such functions, by commas or repeated (default: those of ROUSE_ACCEPT_IMAGES)"`
	Models    []string `flag:"accept-models" split:"" help:"<models> and adapters of such functions: references, or beginnings of references that end in a slash, such as https://models.example.com/ (default: those of ROUSE_ACCEPT_MODELS, or pico, hf:// and ollama://)"`
	Max       int      `flag:"accept-max" least:"1" help:"how many such functions there may be at once"`
}

// config adds them to the agent's configuration, nil if it joins nothing, and returns the images by runtime.
func (f *acceptFlags) config(join *agent.Config) (images map[string]string, err error) {
	if join == nil {
		if len(f.Functions)+len(f.Images) > 0 {
			return nil, errors.New("--accept-functions and --accept-images: say for which front door (--join)")
		}
		return nil, nil
	}
	join.Accept = agent.Accept{Functions: f.Functions, Models: f.Models, Max: f.Max}
	images = map[string]string{}
	for _, one := range f.Images {
		kind, image, found := strings.Cut(one, "=")
		if !found || images[kind] != "" {
			return nil, fmt.Errorf("--accept-images %q: want RUNTIME=IMAGE, each runtime once", one)
		}
		images[kind] = image
	}
	return images, join.Validate()
}

func words(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}
