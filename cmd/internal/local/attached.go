package local

import (
	"context"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Attached servers may have adapters of their own. Instances report them; while there is none the server is asked.
const attachedPause = 5 * time.Second // between two tries

// attached reports whether f's server lists its adapters and somebody else starts it.
func attached(f api.Function) bool {
	return f.Runtime.Endpoint != "" && (f.Runtime.Kind == api.RuntimeVLLM || f.Runtime.Kind == api.RuntimeSGLang)
}

// askAttached reports whether there was an answer.
func (s *server) askAttached(ctx context.Context, f api.Function) bool {
	names, err := broughtBy(ctx, f.Runtime.Endpoint)
	if err != nil {
		s.cfg.Logger.Debug("an attached server does not say which adapters it has", "function", f.Name, "error", err)
		return false
	}
	names = slices.DeleteFunc(names, func(n api.ModelName) bool { return slices.Contains(f.Names(), n) })
	s.activator.Brings(f.Name, names)
	return true
}

func (s *server) followAttached(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.silence:
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(attachedPause):
			}
			again = s.askSilent(ctx)
		}
	}
}

// askSilent reports whether any have not answered.
func (s *server) askSilent(ctx context.Context) bool {
	s.declaring.Lock()
	var ask []api.Function
	for name := range s.silent {
		if f, declared := s.functions[name]; declared && attached(f) {
			ask = append(ask, f)
		} else {
			delete(s.silent, name)
		}
	}
	s.declaring.Unlock()
	for _, f := range ask {
		if s.askAttached(ctx, f) {
			s.declaring.Lock()
			delete(s.silent, f.Name)
			s.declaring.Unlock()
		}
	}
	s.declaring.Lock()
	defer s.declaring.Unlock()
	return len(s.silent) > 0
}

// broughtBy takes models with a parent for adapters, as in vLLM and SGLang.
func broughtBy(ctx context.Context, e api.Endpoint) ([]api.ModelName, error) {
	transport := api.NewTransport(1)
	defer transport.CloseIdleConnections()
	list, err := runtime.Models(ctx, transport, e)
	if err != nil {
		return nil, err
	}
	var names []api.ModelName
	for _, m := range list {
		if m.Parent != "" && api.CheckAdapterName(m.ID) == nil {
			names = append(names, m.ID)
		}
	}
	return names, nil
}
