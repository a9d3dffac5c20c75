package adapters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Restore makes the runtime at e, which has just generated its first token, know
// what is registered. It ends when ctx does. An error means that the runtime
// should not be used: a declared adapter is missing.
func (r *Registry) Restore(ctx context.Context, e api.Endpoint) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	r.mu.Lock()
	r.endpoint = e
	unload, adapters := r.unload, slices.Clone(r.adapters)
	r.mu.Unlock()
	for _, name := range unload {
		if err := r.cfg.Loader.UnloadAdapter(ctx, e, name); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("unload adapter %s: %w", name, err)
		}
	}
	r.mu.Lock()
	r.unload = nil
	r.mu.Unlock()
	for _, a := range adapters {
		err := r.load(ctx, e, &a)
		a.State, a.Message = Loaded, ""
		if err != nil {
			a.State, a.Message = Failed, err.Error()
			r.cfg.Logger.Error("an adapter can't be loaded", "adapter", a.Name, "path", a.Path, "error", err)
		}
		r.mu.Lock()
		r.put(a)
		r.mu.Unlock()
		if err != nil && (a.declared || ctx.Err() != nil) {
			return fmt.Errorf("load adapter %s: %w", a.Name, err)
		}
	}
	r.askRuntime(ctx, e)
	return nil
}

// load resolves an adapter's path, if that was not done, and loads it.
func (r *Registry) load(ctx context.Context, e api.Endpoint, a *Adapter) error {
	if a.path == "" {
		path, err := r.resolve(ctx, *a)
		if err != nil {
			return err
		}
		a.path = path
	}
	return r.cfg.Loader.LoadAdapter(ctx, e, api.Adapter{Name: a.Name, Path: a.path})
}

// Register registers an adapter, and loads it where the runtime takes requests.
// Doing it again with the same path does nothing. The error is an *[api.Error],
// after which nothing is changed.
//
// Its path is resolved before the change begins: what is fetched may take long, and
// a wake, which ends with [Registry.Restore], must not wait for it.
func (r *Registry) Register(ctx context.Context, name api.ModelName, path string) (Adapter, error) {
	if err := r.checkName(name); err != nil {
		return Adapter{}, err
	}
	a, _, err := r.draft(name, path)
	if err != nil || a.State == Loaded {
		return a, err
	}
	resolved, err := r.resolve(ctx, a)
	if err != nil {
		return Adapter{}, err
	}
	if err := r.begin(ctx); err != nil {
		return Adapter{}, err
	}
	defer r.end()
	a, e, err := r.draft(name, path) // another change may have come before
	if err != nil || a.State == Loaded {
		return a, err
	}
	a.path = resolved
	now, err := r.enter(ctx)
	if err != nil {
		return Adapter{}, err
	}
	if now {
		defer r.cfg.Gate.Leave()
		if err := r.load(ctx, e, &a); err != nil {
			return Adapter{}, refusal(ctx, "load", name, err)
		}
		a.State = Loaded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(a)
	r.unload = slices.DeleteFunc(r.unload, func(n api.ModelName) bool { return n == name })
	return a, nil
}

// draft is the adapter as it stands if it is loaded, and else as it would be
// registered now; and where the runtime is.
func (r *Registry) draft(name api.ModelName, path string) (Adapter, api.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old Adapter
	if i := r.find(name); i >= 0 {
		if old = r.adapters[i]; old.Path != path {
			return Adapter{}, "", api.Errorf(http.StatusConflict, "", "adapter %s is registered with the path %s: delete it first, or choose another name", name, old.Path)
		}
	}
	if old.State == Loaded {
		return old, r.endpoint, nil
	}
	return Adapter{Name: name, Path: path, Parent: r.cfg.Model, State: Pending, declared: old.declared, created: time.Now()}, r.endpoint, nil
}

// Remove unloads an adapter and forgets it. Where the runtime can't be asked now,
// it is unloaded when it wakes. The error is an *[api.Error].
func (r *Registry) Remove(ctx context.Context, name api.ModelName) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	r.mu.Lock()
	i := r.find(name)
	state, e := Pending, r.endpoint
	if i >= 0 {
		state = r.adapters[i].State
	}
	r.mu.Unlock()
	if i < 0 {
		return api.Errorf(http.StatusNotFound, "", "there is no adapter %s: GET /adapters/info lists them", name)
	}
	later := false
	if state == Loaded {
		now, err := r.enter(ctx)
		if err != nil {
			return err
		}
		if now {
			defer r.cfg.Gate.Leave()
			if err := r.cfg.Loader.UnloadAdapter(ctx, e, name); err != nil {
				return refusal(ctx, "unload", name, err)
			}
		}
		later = !now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adapters = slices.Delete(r.adapters, r.find(name), r.find(name)+1)
	if later {
		r.unload = append(r.unload, name)
	}
	return nil
}

// A runtime that was just restored takes requests a moment later: so long, and
// so often, a change looks whether it does.
const (
	openingTime  = 200 * time.Millisecond
	openingPause = 2 * time.Millisecond
)

// enter takes a place in the runtime, which the caller gives back if now is true.
// It is false where the runtime will come back by Restore. A runtime that is full
// is an error: it has to be tried again.
func (r *Registry) enter(ctx context.Context) (now bool, err error) {
	for began := time.Now(); ; {
		_, refused := r.cfg.Gate.Enter()
		switch {
		case refused == nil:
			return true, nil
		case refused.Code == api.CodeBusy:
			return false, refused
		case refused.Code != api.CodeLoading || !r.restored() || time.Since(began) >= openingTime:
			return false, nil
		}
		select {
		case <-time.After(openingPause):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// restored says whether a runtime was ever restored.
func (r *Registry) restored() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endpoint != ""
}

// refusal is the error of a change that the runtime did not make.
func refusal(ctx context.Context, act string, name api.ModelName, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errors.ErrUnsupported):
		return api.Errorf(http.StatusNotImplemented, "", "%s adapter %s: %v", act, name, err)
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "%s adapter %s: %v", act, name, err)
}
