package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/worker"
)

var (
	ErrNoAdapter     = errors.New("no such adapter is loaded")
	ErrAdapterLoaded = errors.New("an adapter of this name is loaded")
	ErrAdapterOther  = errors.New("the adapter of this name is another one")
	ErrAdaptersFull  = errors.New("as many adapters are loaded as may be at once")
)

// Adapter is a loaded LoRA adapter.
type Adapter struct {
	Name string
	Path string
	// Digest is of the contents; "": unknown.
	Digest string
}

// Engine.mu guards an adapter's fields.
type adapter struct {
	worker.Adapter
	identity  string // unique to the function that it computes
	digest    string // of its contents; "": unknown
	ready     bool
	unloading bool
	users     int           // unfinished sequences
	idle      chan struct{} // closed when users is 0 and unloading is true
}

// LoadAdapter reads a LoRA adapter from a file or folder, and blocks until the worker has it. It fails with
// [ErrAdapterLoaded], [ErrAdaptersFull], [ErrAsleep], [ErrStopped], or an error that names what does not fit the model.
func (e *Engine) LoadAdapter(ctx context.Context, name, path string) error {
	a, err := e.reserve(name, path)
	if err != nil {
		return fmt.Errorf("load adapter %q: %w", name, err)
	}
	before := contents(path)
	err = e.worker.LoadAdapter(ctx, a.Adapter)
	after := contents(path)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		delete(e.adapters, name)
		return fmt.Errorf("load adapter %q from %s: %w", name, path, err)
	}
	if a.identity = identify(a.ID, before, after); a.identity == after {
		a.digest = after
	}
	a.ready = true
	return nil
}

// reserve never reuses an ID: the prefix cache tells successive adapters of one name apart.
func (e *Engine) reserve(name, path string) (*adapter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
		return nil, ErrStopped
	case e.state == Asleep || e.state == Waking:
		return nil, ErrAsleep
	case name == "":
		return nil, invalid("lora_name", "the adapter has no name: give it one")
	case e.adapters[name] != nil:
		return nil, ErrAdapterLoaded
	case e.cfg.Adapters > 0 && len(e.adapters) >= e.cfg.Adapters:
		return nil, fmt.Errorf("%w (%d)", ErrAdaptersFull, e.cfg.Adapters)
	}
	e.lastAdapter++
	a := &adapter{Adapter: worker.Adapter{ID: e.lastAdapter, Name: name, Path: path}, idle: make(chan struct{})}
	e.adapters[name] = a
	return a, nil
}

// UnloadAdapter refuses new requests for an adapter, and blocks until the last has finished. If ctx ends first the
// adapter stays. It fails with [ErrNoAdapter].
func (e *Engine) UnloadAdapter(ctx context.Context, name string) error {
	e.mu.Lock()
	a := e.adapters[name]
	if a == nil || !a.ready || a.unloading {
		e.mu.Unlock()
		return fmt.Errorf("unload adapter %q: %w", name, ErrNoAdapter)
	}
	a.unloading = true
	if a.users == 0 {
		close(a.idle)
	}
	e.mu.Unlock()
	select {
	case <-a.idle:
	case <-ctx.Done():
		if e.cancelUnload(a) {
			return fmt.Errorf("unload adapter %q: %w", name, context.Cause(ctx))
		}
	}
	e.mu.Lock()
	delete(e.adapters, name)
	e.mu.Unlock()
	if err := e.worker.UnloadAdapter(ctx, a.ID); err != nil {
		return fmt.Errorf("unload adapter %q: %w", name, err)
	}
	return nil
}

// cancelUnload reports false if it is too late.
func (e *Engine) cancelUnload(a *adapter) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.users == 0 {
		return false
	}
	a.unloading = false
	return true
}

// Adapters are sorted by name.
func (e *Engine) Adapters() []Adapter {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Adapter
	for name, a := range e.adapters {
		if a.ready && !a.unloading {
			list = append(list, Adapter{Name: name, Path: a.Path, Digest: a.digest})
		}
	}
	slices.SortFunc(list, func(a, b Adapter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (e *Engine) findAdapter(r *accepted) error {
	if r.Adapter == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.adapter = e.adapters[r.Adapter]
	if r.adapter == nil || !r.adapter.ready || r.adapter.unloading {
		return noAdapter(r.Adapter)
	}
	if r.AdapterDigest != "" && r.AdapterDigest != r.adapter.digest {
		return fmt.Errorf("%w: %q", ErrAdapterOther, r.Adapter)
	}
	return nil
}

func noAdapter(name string) error {
	return invalid("model", "adapter %q is not loaded: load it, or ask for one that is", name)
}

// leave needs Engine.mu.
func (a *adapter) leave() {
	if a.users--; a.users == 0 && a.unloading {
		close(a.idle)
	}
}
