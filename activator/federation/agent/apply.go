package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// Applier creates functions in the cluster for front doors. It is safe for concurrent use.
type Applier interface {
	// Apply creates or updates a function. It refuses, with an [api.Error], one that has other owners or was not made by Apply.
	Apply(ctx context.Context, m protocol.Manifest, front string) error
	// Remove removes an owner, and with the last one a function that Apply made. A missing function is no error.
	Remove(ctx context.Context, name api.FunctionName, front string) error
	// Owners returns none if the function was declared otherwise or does not exist. It does not block.
	Owners(name api.FunctionName) []string
}

// Accept bounds the functions that front doors may create, which are code that runs in the cluster.
type Accept struct {
	// Functions are patterns of names, such as "default/*".
	Functions []string
	// Models are the allowed model references, as in [config.Accept].
	Models []string
	// Max bounds the number of such functions. Default 16.
	Max int
	// Memory is nil if unknown.
	Memory *api.Memory
}

// Validate returns an error for the first invalid field.
func (a Accept) Validate() error {
	if len(a.Functions) > protocol.MaxPatterns {
		return fmt.Errorf("%d patterns of functions: want at most %d", len(a.Functions), protocol.MaxPatterns)
	}
	for _, p := range a.Functions {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%q is no pattern of functions: want NAMESPACE/NAME, where * is any part of a name", p)
		}
	}
	return nil
}

const maxOrders = 64

// The caller holds the agent's mutex.
func (s *session) order(m protocol.Manifest) {
	select {
	case s.orders <- m:
	default:
		s.applied = append(s.applied, protocol.Applied{Name: m.Name, Number: m.Number, Failed: protocol.FailureOf(
			api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "the cluster has %d other functions to create or remove", maxOrders))})
		s.wake.Ring()
	}
}

func (s *session) executeOrders(ctx context.Context) {
	for {
		select {
		case m := <-s.orders:
			do := s.f.a.apply
			if m.YAML == "" {
				do = s.f.a.remove
			}
			done := protocol.Applied{Name: m.Name, Number: m.Number}
			if err := do(ctx, m, s.welcome.Owner); err != nil {
				done.Failed = protocol.FailureOf(plain(err))
				s.f.a.log.Warn("what a front door wants is refused", "front", s.f.at, "function", done.Name, "because", done.Failed.Message)
			}
			s.f.a.mu.Lock()
			s.applied = append(s.applied, done)
			s.f.a.mu.Unlock()
			s.f.a.Changed(done.Name)
		case <-s.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (a *Agent) apply(ctx context.Context, m protocol.Manifest, front string) error {
	if a.deps.Applier == nil || !protocol.Matches(a.cfg.Accept.Functions, string(m.Name)) {
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
		return err
	}
	a.log.Info("a front door had a function created", "front", front, "function", m.Name)
	return nil
}

func (a *Agent) remove(ctx context.Context, m protocol.Manifest, front string) error {
	if a.deps.Applier == nil || !slices.Contains(a.deps.Applier.Owners(m.Name), front) {
		return nil
	}
	if now, ok := a.deps.Stats(m.Name); ok && now.Running+now.Waiting > 0 {
		return api.Errorf(http.StatusConflict, api.CodeBusy, "%s has requests", m.Name)
	}
	if err := a.deps.Applier.Remove(ctx, m.Name, front); err != nil {
		return err
	}
	a.log.Info("a front door had a function removed", "front", front, "function", m.Name)
	return nil
}

// plain lets an error that is no [api.Error] keep its own text.
func plain(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed, "%v", err)
}
