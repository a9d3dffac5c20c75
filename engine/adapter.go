package engine

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoAdapter is wrapped by the error for an adapter that is not loaded.
var ErrNoAdapter = errors.New("no such adapter is loaded")

// ErrAdapterLoaded is wrapped by the error for a name that is taken.
var ErrAdapterLoaded = errors.New("an adapter of this name is loaded")

// LoadAdapter reads a LoRA adapter from a file or folder and gives it a name that
// requests can ask for. It waits until the workers have it; requests go on
// meanwhile. It fails with [ErrAdapterLoaded], [ErrAsleep], [ErrStopped], or with what
// does not fit the model.
func (e *Engine) LoadAdapter(_ context.Context, name, path string) error {
	return fmt.Errorf("load adapter %q from %s: %w", name, path, ErrNotYet)
}

// UnloadAdapter forgets an adapter. Requests that use it are finished first, and new
// ones are refused from the call on. It fails with [ErrNoAdapter] or [ErrStopped].
func (e *Engine) UnloadAdapter(_ context.Context, name string) error {
	return fmt.Errorf("unload adapter %q: %w", name, ErrNoAdapter)
}

// Adapter is one that is loaded.
type Adapter struct {
	Name string
	Path string
}

// Adapters lists what is loaded, by name.
func (e *Engine) Adapters() []Adapter { return nil }
