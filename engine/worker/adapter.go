package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
)

// OpenAdapter reads an adapter: a file or folder as [lora.Open] says, or one of those that
// ship with pico, as "pico/shout".
func OpenAdapter(path string, c model.Config) (*lora.Adapter, error) {
	name, ok := strings.CutPrefix(path, pico.Name+"/")
	if !ok {
		return lora.Open(path, c)
	}
	place, ok := pico.AdapterPaths[name]
	if !ok {
		return nil, fmt.Errorf("no adapter %q ships with %s; there are %s", name, pico.Name, strings.Join(slices.Sorted(maps.Keys(pico.AdapterPaths)), ", "))
	}
	a, err := lora.ReadFS(pico.Adapters, place, c)
	if err != nil {
		return nil, fmt.Errorf("open the adapter %s: %w", path, err)
	}
	a.Name = name
	return a, nil
}
