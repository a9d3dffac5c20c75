package adapters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

// Restore loads the registered adapters into the runtime at e, which has just generated its first token. An error means that a declared
// adapter is missing, so the runtime should not be used.
func (r *Registry) Restore(ctx context.Context, e api.Endpoint) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	r.mu.Lock()
	r.endpoint = e
	unload, adapters := slices.Clone(r.unload), r.order()
	r.mu.Unlock()
	for _, name := range unload {
		if err := r.cfg.Loader.UnloadAdapter(ctx, e, name); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("unload adapter %s: %w", name, err)
		}
	}
	r.mu.Lock()
	r.unload = nil
	r.mu.Unlock()
	for k, a := range slices.DeleteFunc(adapters, func(a Adapter) bool { return a.brought }) {
		var err error
		a.State, a.Message = Loaded, ""
		if r.cfg.Room > 0 && k >= r.cfg.Room {
			a.State = Standby
		} else if err = r.load(ctx, e, &a); err != nil {
			a.State, a.Message = Failed, err.Error()
			r.cfg.Logger.Error("an adapter can't be loaded", "adapter", a.Name, "error", err)
		}
		r.mu.Lock()
		r.put(a)
		r.mu.Unlock()
		if err != nil && (a.required || ctx.Err() != nil) {
			return fmt.Errorf("load adapter %s: %w", a.Name, err)
		}
	}
	r.askRuntime(ctx, e)
	return nil
}

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

// Register registers an adapter, and loads it if the runtime accepts requests. Registering it again with the same path does nothing. The
// error is an *[api.Error], after which nothing is changed.
//
// The path is resolved before the change begins: a fetch may take long, and a wake, which ends with [Registry.Restore], must not wait for
// it.
func (r *Registry) Register(ctx context.Context, name api.ModelName, path string) (Adapter, error) {
	return r.register(ctx, name, path, false)
}

func (r *Registry) register(ctx context.Context, name api.ModelName, path string, declared bool) (Adapter, error) {
	if err := r.checkName(name); err != nil {
		return Adapter{}, err
	}
	if r.cfg.Fixed {
		return Adapter{}, fixed(name)
	}
	if r.cfg.Room < 0 {
		return Adapter{}, api.BadRequest("", "there is no room for the adapter %s beside those that the runtime's options name: raise its --max-loras", name)
	}
	a, _, err := r.draft(name, path, declared)
	if err != nil || a.State != Pending {
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
	a, e, err := r.draft(name, path, declared) // another change may have come before
	if err != nil || a.State != Pending {
		return a, err
	}
	a.path = resolved
	now, err := r.enter(ctx)
	if err != nil {
		return Adapter{}, err
	}
	if now {
		defer r.cfg.Gate.Leave()
		if err := r.bringIn(ctx, e, &a); err != nil {
			return Adapter{}, refusal(ctx, "load", name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(a)
	r.unload = slices.DeleteFunc(r.unload, func(n api.ModelName) bool { return n == name })
	return a, nil
}

// bringIn loads a new adapter, or leaves it on standby. A removed one of the same name that is still loaded is unloaded first, if no
// request uses it.
func (r *Registry) bringIn(ctx context.Context, e api.Endpoint, a *Adapter) error {
	r.mu.Lock()
	before, used := slices.Contains(r.unload, a.Name), r.use.running[a.Name] > 0
	r.mu.Unlock()
	if used {
		return api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "requests still use the adapter %s that was removed: try again when they have ended", a.Name).WithRetryAfter(time.Second)
	}
	if before {
		if err := r.cfg.Loader.UnloadAdapter(ctx, e, a.Name); err != nil {
			return err
		}
	}
	room, err := r.makeRoom(ctx, e, false)
	if err != nil {
		return err
	}
	if !room {
		a.State = Standby
		return nil
	}
	a.State = Loaded
	return r.load(ctx, e, a)
}

func (r *Registry) draft(name api.ModelName, path string, declared bool) (Adapter, api.Endpoint, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var old Adapter
	if i := r.find(name); i >= 0 {
		if old = r.adapters[i]; old.Path != path {
			return Adapter{}, "", api.Errorf(http.StatusConflict, "", "adapter %s is registered with the path %s: delete it first, or choose another name", name, old.Path)
		}
	}
	if old.State == Loaded || old.State == Standby {
		if declared && !old.declared {
			old.declared = true
			r.put(old)
		}
		return old, r.endpoint, nil
	}
	return Adapter{Name: name, Path: path, Parent: r.cfg.Model, State: Pending, declared: declared || old.declared, required: old.required, created: time.Now()}, r.endpoint, nil
}

// Remove unloads an adapter and forgets it: when the runtime wakes if it can't be reached now, when the last request ends if some use it.
// No new request may use it. The error is an *[api.Error].
func (r *Registry) Remove(ctx context.Context, name api.ModelName) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	r.mu.Lock()
	i := r.find(name)
	if i >= 0 && r.adapters[i].brought {
		r.mu.Unlock()
		return api.Errorf(http.StatusConflict, "", "the adapter %s is the runtime's own, which was started with it or was told of it by somebody else: remove it there", name)
	}
	state, e, used := Pending, r.endpoint, r.use.running[name] > 0
	if i >= 0 {
		state = r.adapters[i].State
	}
	if used = used && i >= 0; used {
		r.adapters = slices.Delete(r.adapters, i, i+1)
		r.unload = append(r.unload, name)
	}
	r.mu.Unlock()
	if used {
		return nil
	}
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
			if err := r.drop(ctx, e, name); err != nil {
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

// Declare replaces the list of declared adapters. Those that were registered otherwise stay. If one can't be changed, the others are all
// the same, and the error is an *[api.Error]. None of them fails a later start or wake.
func (r *Registry) Declare(ctx context.Context, list []api.Adapter) error {
	var errs []error
	for _, a := range r.List() {
		if a.declared && !slices.ContainsFunc(list, func(d api.Adapter) bool { return d.Name == a.Name && d.Path == a.Path }) {
			if r.cfg.Fixed {
				return fixed(a.Name)
			}
			err := r.Remove(ctx, a.Name)
			if err != nil && api.AsError(err).Status == http.StatusNotFound { // another call has removed it meanwhile
				err = nil
			}
			errs = append(errs, err)
		}
	}
	for _, d := range list {
		if d.Path == "" {
			errs = append(errs, api.BadRequest("path", "the adapter %s has no path: name a folder or a reference", d.Name))
			continue
		}
		if err := r.outside(d.Path); err != nil {
			errs = append(errs, err)
			continue
		}
		if r.declares(d) {
			continue
		}
		_, err := r.register(ctx, d.Name, d.Path, true)
		errs = append(errs, err)
	}
	return cmp.Or(errs...)
}

// A failed adapter is tried again.
func (r *Registry) declares(d api.Adapter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(d.Name)
	return i >= 0 && r.adapters[i].declared && r.adapters[i].Path == d.Path && r.adapters[i].State != Failed
}

func fixed(name api.ModelName) *api.Error {
	return api.Errorf(http.StatusNotImplemented, api.CodeUnsupported, "the adapter %s: the runtime takes adapters at its start only: an instance that is started anew has what is declared", name)
}

// A runtime that was just restored accepts requests a moment later: a change polls for that long, at this interval.
const (
	openingTime  = 200 * time.Millisecond
	openingPause = 2 * time.Millisecond
)

// enter takes a slot in the runtime, which the caller gives back if now is true; false: the runtime will come back by Restore. A full
// runtime is an error: the caller must retry.
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
		if err := bell.Sleep(ctx, openingPause); err != nil {
			return false, err
		}
	}
}

func (r *Registry) restored() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endpoint != ""
}

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
