package local

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// applied is a function that front doors have created here.
type applied struct {
	manifest string
	fronts   []string // its owners; replaced, never changed
}

// applier implements agent.Applier.
type applier struct{ *server }

func (s applier) Apply(ctx context.Context, m protocol.Manifest, front string) error {
	f, err := readApplied(m, front, s.cfg.AcceptKinds, s.cfg.Join.Accept.Models)
	if err != nil {
		return api.Errorf(http.StatusForbidden, api.CodeStartFailed, "%v", err)
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	_, there := s.declaration(m.Name)
	s.owning.Lock()
	has := s.applied[m.Name]
	s.owning.Unlock()
	switch {
	case there && has == nil:
		return api.Errorf(http.StatusConflict, "", "%s is declared there by somebody else", m.Name)
	case has != nil && has.manifest != m.YAML && (len(has.fronts) > 1 || has.fronts[0] != front):
		return api.Errorf(http.StatusConflict, "", "%s is there as %s has declared it, which is different", m.Name, strings.Join(has.fronts, ", "))
	}
	if err := checkModel(&f); err != nil {
		return err
	}
	if problem := s.startProblem(f); problem != "" {
		return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "it can't start: %s", problem)
	}
	now := &applied{manifest: m.YAML, fronts: []string{front}}
	if has != nil {
		now.fronts = append(slices.DeleteFunc(slices.Clone(has.fronts), func(other string) bool { return other == front }), front)
	}
	s.setApplied(m.Name, now) // before it is announced
	if _, err := s.declare(ctx, f); err != nil {
		s.setApplied(m.Name, has)
		return err
	}
	return nil
}

// Remove removes the function with its last owner.
func (s applier) Remove(ctx context.Context, name api.FunctionName, front string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.owning.Lock()
	has := s.applied[name]
	s.owning.Unlock()
	if has == nil || !slices.Contains(has.fronts, front) {
		return nil
	}
	if len(has.fronts) > 1 {
		s.setApplied(name, &applied{manifest: has.manifest, fronts: slices.DeleteFunc(slices.Clone(has.fronts), func(other string) bool { return other == front })})
		return nil
	}
	return s.remove(ctx, name)
}

func (s applier) Owners(name api.FunctionName) []string {
	s.owning.Lock()
	defer s.owning.Unlock()
	if a := s.applied[name]; a != nil {
		return a.fronts // never changed
	}
	return nil
}

func (s *server) setApplied(name api.FunctionName, a *applied) {
	s.owning.Lock()
	defer s.owning.Unlock()
	if a == nil {
		delete(s.applied, name)
	} else {
		s.applied[name] = a
	}
}

// readApplied refuses what this machine does not allow.
func readApplied(m protocol.Manifest, front string, kinds, models []string) (api.Function, error) {
	f, _, err := config.Accept{Models: models, Programs: slices.Contains(kinds, api.RuntimeCommand)}.Read(m.Name, m.YAML, front)
	switch {
	case err != nil:
		return f, err
	case !slices.Contains(kinds, f.Runtime.Kind):
		return f, fmt.Errorf("this cluster accepts no functions of the runtime %s (--accept-runtimes has %s)", f.Runtime.Kind, strings.Join(kinds, ", "))
	case f.Priority > 0:
		return f, fmt.Errorf("this cluster accepts no function with %s above 0 from a front door: its own functions come first", config.AnnotationPriority)
	}
	return f, nil
}
