package local

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// overhead is an engine's memory besides its model's, before it was measured.
const overhead = 48 * api.MiB

func (s *server) declareAll(ctx context.Context) error {
	for _, f := range s.cfg.Functions {
		if _, err := s.declare(ctx, f); err != nil {
			return err
		}
		if problem := s.startProblem(s.functions[f.Name]); f.Clusters == "" && problem != "" {
			s.cfg.Logger.Warn("a function can't start as things are", "function", f.Name, "because", problem)
		}
	}
	for _, f := range s.cfg.Functions { // a fallback may be declared later
		s.warnFallbacks(f.Name)
	}
	return nil
}

func (s *server) warnFallbacks(name api.FunctionName) {
	stats, _ := s.activator.Stats(name)
	for _, wrong := range stats.WrongFallbacks {
		s.cfg.Logger.Warn("a fallback can't answer", "function", name, "because", wrong)
	}
}

// declare returns "created", "configured" or "unchanged". Instances of a replaced function drain and stop; waiting requests go to the new
// ones.
//
// If only adapters differ, instances stay, and load new ones before the names are announced: one that can't be loaded changes nothing.
func (s *server) declare(ctx context.Context, f api.Function) (string, error) {
	if err := f.Name.Check(); err != nil {
		return "", api.BadRequest("name", "%v", err)
	}
	f = f.WithDefaults()
	if f.Clusters != "" {
		return s.place(f)
	}
	if err := checkModel(&f); err != nil {
		return "", err
	}
	if err := checkAdapters(f); err != nil {
		return "", err
	}
	anew, err := s.bring(ctx, f)
	if err != nil {
		return "", err
	}
	s.declaring.Lock()
	defer s.declaring.Unlock()
	old, known := s.functions[f.Name]
	if known && reflect.DeepEqual(old, f) {
		return "unchanged", nil
	}
	if known && old.Clusters != "" {
		return "", elsewhere(f.Name)
	}
	if err := s.unique(f); err != nil {
		return "", err
	}
	if f.DualPods {
		s.cfg.Logger.Info("dual pods are for clusters: on this machine an instance sleeps on the GPUs that it has", "function", f.Name)
	}
	s.functions[f.Name] = f
	if !known {
		s.activator.PutService(f.Name, s.clock.next())
	}
	if known && (anew || !old.Runtime.Adapts(f.Runtime)) { // before the new names are announced
		s.activator.Retire(f.Name)
	}
	s.owns(f, true)
	s.activator.PutFunction(f)
	before := s.learned.Recall(f)
	s.activator.Expect(f.Name, before.Load, before.Wake[api.Level1])
	s.autoscaler.PutFunction(f)
	if why := catalog.ProcessorOnly(f); why != "" && (len(s.gpus) > 0 || catalog.Metal && !s.cfg.NoGPU) {
		s.cfg.Logger.Warn("a function is slower than it could be", "function", f.Name, "because", why)
	}
	if m := f.Memory; m.Devices > 0 && m.PerDevice == 0 && m.Share == 0 {
		s.cfg.Logger.Warn("a function has whole GPUs until it is measured: an annotation says how much it needs", "function", f.Name, "write", config.AnnotationDeviceMemory+": 20Gi")
	}
	if attached(f) && !s.askAttached(ctx, f) {
		s.silent[f.Name] = true
		s.silence.Ring()
	}
	s.bus.Emit(api.NewEvent(api.EventFunction, "/node", f.Name, f.Redacted()))
	if known {
		if onlyAdapters(old, f) {
			s.tellAdapters(ctx, f)
		}
		return "configured", nil
	}
	return "created", nil
}

func (s *server) Declare(ctx context.Context, f api.Function) (string, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	change, err := s.declare(ctx, f)
	if err == nil {
		s.setApplied(f.Name, nil) // it belongs to this machine now
		s.warnFallbacks(f.Name)
	}
	return change, err
}

func (s *server) Withdraw(ctx context.Context, name api.FunctionName, origin string) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if f, known := s.declaration(name); !known || f.Origin != origin {
		return nil
	}
	return s.remove(ctx, name)
}

// declaration locks declaring.
func (s *server) declaration(name api.FunctionName) (f api.Function, known bool) {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	f, known = s.functions[name]
	return f, known
}

// unique needs declaring held.
func (s *server) unique(f api.Function) error {
	all := []api.Function{f}
	for name, other := range s.functions {
		if name != f.Name {
			all = append(all, other)
		}
	}
	if err := config.CheckUnique(all); err != nil {
		return api.Errorf(http.StatusConflict, "", "declare %s: %v", f.Name, err)
	}
	return nil
}

func elsewhere(name api.FunctionName) error {
	return api.Errorf(http.StatusConflict, "", "%s is declared with and without %s: remove it first (rouse rm %s)", name, config.AnnotationClusters, name.Short())
}

// place declares a function that runs in clusters.
func (s *server) place(f api.Function) (string, error) {
	if s.far == nil {
		return "", api.BadRequest("clusters", "%s has the annotation %s, and this server is no front door of clusters (rouse up --clusters)", f.Name, config.AnnotationClusters)
	}
	s.declaring.Lock()
	defer s.declaring.Unlock()
	old, known := s.functions[f.Name]
	switch {
	case known && reflect.DeepEqual(old, f):
		return "unchanged", nil
	case known && old.Clusters == "":
		return "", elsewhere(f.Name)
	}
	if err := s.unique(f); err != nil {
		return "", err
	}
	if err := s.far.Place(f); err != nil {
		return "", err
	}
	s.functions[f.Name] = f
	s.bus.Emit(api.NewEvent(api.EventFunction, "/node", f.Name, f.Redacted()))
	if known {
		return "configured", nil
	}
	return "created", nil
}

// ages gives each function a unique age.
type ages struct{ last time.Time }

func (a *ages) next() time.Time {
	now := time.Now()
	if !now.After(a.last) {
		now = a.last.Add(1)
	}
	a.last = now
	return now
}

// remove has instances drain and stop; waiting requests are refused.
func (s *server) remove(ctx context.Context, name api.FunctionName) error {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	f, known := s.functions[name]
	if !known {
		return s.admin.Unknown(ctx, name)
	}
	delete(s.functions, name)
	if f.Clusters != "" {
		s.far.Unplace(name)
	} else {
		s.setApplied(name, nil)
		s.activator.RemoveFunction(name)
		s.activator.RemoveService(name)
		s.owns(f, false)
		s.autoscaler.RemoveFunction(name)
		s.agent.forget(name)
	}
	s.bus.Emit(api.NewEvent(api.EventFunctionGone, "/node", name, f.Redacted()))
	return nil
}

// checkModel also estimates memory that is not declared.
func checkModel(f *api.Function) error {
	if strings.Contains(f.Runtime.Model, "://") {
		if _, err := fetch.Parse(f.Runtime.Model); err != nil {
			return api.BadRequest("model", "the function %s: %v", f.Name.Name(), err)
		}
		return nil // its size is known once it is fetched
	}
	if f.Runtime.Kind != api.RuntimeEngine {
		return nil
	}
	size := api.Bytes(len(pico.GGUF()))
	if f.Runtime.Model != pico.Name {
		all, err := ggufname.Size(f.Runtime.Model)
		switch {
		case err != nil && !strings.ContainsAny(f.Runtime.Model, "/."):
			return api.BadRequest("model", "the function %s has the model %q: want %s, which ships with Rouse, or the path of a GGUF file", f.Name.Name(), f.Runtime.Model, pico.Name)
		case err != nil:
			return api.BadRequest("model", "the function %s: its model can't be read: %v", f.Name.Name(), err)
		}
		size = api.Bytes(all)
	}
	for _, path := range runtime.ValuesOf(f.Runtime.Args, "--mmproj") {
		projector, err := ggufname.Size(path)
		if err != nil {
			return api.BadRequest("args", "the function %s: its --mmproj can't be read: %v", f.Name.Name(), err)
		}
		size += api.Bytes(projector)
	}
	if f.Memory.Host == 0 {
		f.Memory.Host = size + size/10 + overhead
	}
	return nil
}

func isAdminPath(path string) bool { return strings.HasPrefix(path, "/rouse/") }

func quietLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
