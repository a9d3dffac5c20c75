package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/exchange"
)

// Applier creates functions in the cluster for front doors. Its methods are safe for many goroutines.
type Applier interface {
	// Apply has the cluster have the function of a manifest, for a front door. It changes nothing of a function that is there
	// for others or was not made by Apply, and an [api.Error] says so; for the same manifest it does nothing.
	Apply(ctx context.Context, m exchange.Manifest, front string) error
	// Remove ends that the function is there for a front door. It is removed where it is there for nobody else, and
	// was made by Apply; one that is not there is no error.
	Remove(ctx context.Context, name api.FunctionName, front string) error
	// Owners are the front doors that a function is there for; none: somebody else declared it, or it is not there. It
	// does not block.
	Owners(name api.FunctionName) []string
}

// Accept says which functions front doors may have created. A function is code that runs in the cluster.
// The zero value accepts none.
type Accept struct {
	// Functions are patterns of names, as "default/*".
	Functions []string
	// Models are references of models that they may have, as in [config.Accept].
	Models []string
	// Max bounds how many there are at once. Default 16.
	Max int
	// Memory is the most that one instance may have; nil: nobody knows.
	Memory *api.Memory
}

// Validate reports the first field that is wrong, and what it should be.
func (a Accept) Validate() error {
	if a.Max < 0 {
		return fmt.Errorf("at most %d functions of front doors: want 0 or more", a.Max)
	}
	if len(a.Functions) > exchange.MaxPatterns {
		return fmt.Errorf("%d patterns of functions: want at most %d", len(a.Functions), exchange.MaxPatterns)
	}
	for _, p := range a.Functions {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%q is no pattern of functions: want NAMESPACE/NAME, where * is any part of a name", p)
		}
	}
	return nil
}

// takes says whether a function of that name may be created.
func (a Accept) takes(name api.FunctionName) bool {
	return slices.ContainsFunc(a.Functions, func(p string) bool {
		ok, err := path.Match(p, string(name))
		return ok && err == nil
	})
}

// maxOrders bounds what one front door may want at once that is not done yet.
const maxOrders = 64

// ordered is a manifest or a removal of a front door.
type ordered struct {
	manifest *exchange.Manifest // nil: it is a removal
	removal  exchange.Removal
}

// order takes in what a front door wants created and removed. The caller holds the agent's mutex.
func (s *session) order(down *exchange.Down) {
	put := func(o ordered, name api.FunctionName, number uint64) {
		select {
		case s.orders <- o:
		default:
			s.applied = append(s.applied, exchange.Applied{Name: name, Number: number, Failed: exchange.FailureOf(
				api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the cluster has %d other functions to create or remove", maxOrders))})
			s.nudge()
		}
	}
	for _, r := range down.Remove {
		put(ordered{removal: r}, r.Name, r.Number)
	}
	for i := range down.Apply {
		m := down.Apply[i]
		put(ordered{manifest: &m}, m.Name, m.Number)
	}
}

// carryOut does what the front door wants, one thing after another, until ctx ends or the session does.
func (s *session) carryOut(ctx context.Context) {
	for {
		select {
		case o := <-s.orders:
			done := exchange.Applied{Name: o.removal.Name, Number: o.removal.Number}
			var err error
			if o.manifest != nil {
				done.Name, done.Number = o.manifest.Name, o.manifest.Number
				err = s.f.a.apply(ctx, *o.manifest, s.welcome.Owner)
			} else {
				err = s.f.a.remove(ctx, o.removal.Name, s.welcome.Owner)
			}
			if err != nil {
				done.Failed = exchange.FailureOf(err)
				s.f.a.log.Warn("what a front door wants is refused", "front", s.f.at, "function", done.Name, "because", done.Failed.Message)
			}
			s.f.a.mu.Lock()
			s.applied = append(s.applied, done)
			s.dirty[done.Name] = true
			s.f.a.mu.Unlock()
			s.nudge()
		case <-s.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// apply creates a function for a front door, or says why not.
func (a *Agent) apply(ctx context.Context, m exchange.Manifest, front string) error {
	if a.deps.Applier == nil || !a.cfg.Accept.takes(m.Name) {
		return api.Errorf(http.StatusForbidden, api.CodeNoCapacity, "this cluster accepts no function %s from a front door", m.Name)
	}
	if len(a.deps.Applier.Owners(m.Name)) == 0 {
		n := 0
		for _, spec := range a.deps.Functions() {
			if spec.Name != m.Name && len(a.deps.Applier.Owners(spec.Name)) > 0 {
				n++
			}
		}
		if n >= a.cfg.Accept.Max {
			return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "this cluster has %d functions of front doors, which is its limit", n)
		}
	}
	if err := a.deps.Applier.Apply(ctx, m, front); err != nil {
		return plain(err)
	}
	a.log.Info("a front door had a function created", "front", front, "function", m.Name)
	return nil
}

// remove removes a function of a front door, where nothing of it is in use.
func (a *Agent) remove(ctx context.Context, name api.FunctionName, front string) error {
	if a.deps.Applier == nil || !slices.Contains(a.deps.Applier.Owners(name), front) {
		return nil // it is not there for this front door
	}
	if now, ok := a.deps.Stats(name); ok && now.Running+now.Waiting > 0 {
		return api.Errorf(http.StatusConflict, api.CodeBusy, "%s has requests", name)
	}
	if err := a.deps.Applier.Remove(ctx, name, front); err != nil {
		return plain(err)
	}
	a.log.Info("a front door had a function removed", "front", front, "function", name)
	return nil
}

// plain is err for whoever asked at the front door: what is no [api.Error] is told in its own words.
func plain(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed, "%v", err)
}
