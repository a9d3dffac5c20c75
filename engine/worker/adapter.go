package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
)

func (s *Supervisor) give(ctx context.Context, l *link, a Adapter, c model.Config) error {
	if s.cfg.Adapter != nil {
		given, done, err := s.cfg.Adapter(a, c)
		if err != nil {
			return err
		}
		defer done()
		a = given
	}
	_, err := l.control(ctx, Op{Verb: OpLoadAdapter, Adapter: &a})
	return err
}

// plainAdapter writes an adapter for workers in other languages.
func plainAdapter(a Adapter, c model.Config) (given Adapter, done func(), err error) {
	x, err := OpenAdapter(a.Path, c)
	if err != nil {
		return a, nil, err
	}
	f, err := os.CreateTemp("", "rouse-adapter-*.gguf") // 0600
	if err != nil {
		return a, nil, fmt.Errorf("hand over the adapter %s: %w", a.Path, err)
	}
	done = func() { _ = os.Remove(f.Name()) }
	if err := errors.Join(x.Write(f, c), f.Close()); err != nil {
		done()
		return a, nil, fmt.Errorf("hand over the adapter %s: %w", a.Path, err)
	}
	a.Path = f.Name()
	return a, done, nil
}

// OpenAdapter reads a file or folder as [lora.Open] does, or an adapter of pico, such as "pico/shout".
func OpenAdapter(path string, c model.Config) (*lora.Adapter, error) {
	if !c.Plain() {
		return nil, fmt.Errorf("open the adapter %s: models of the architecture %s take no adapters", path, c.Arch)
	}
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
