package local

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// adaptersTime bounds the wait for instances; those that take longer are told later.
const adaptersTime = 10 * time.Second

func onlyAdapters(a, b api.Function) bool {
	a.Runtime.Adapters, b.Runtime.Adapters = nil, nil
	a.Origin, b.Origin = "", ""
	return reflect.DeepEqual(a, b)
}

func checkAdapters(f api.Function) error {
	if err := f.Runtime.CheckAdapters(); err != nil {
		return api.BadRequest("name", "the function %s: %v", f.Name.Name(), err)
	}
	for k, a := range f.Runtime.Adapters {
		if err := api.CheckAdapterName(a.Name); err != nil {
			return api.BadRequest("name", "the function %s: %v", f.Name.Name(), err)
		}
		if a.Path == "" {
			return api.BadRequest("path", "the function %s: the adapter %s has no path: name a folder or a reference", f.Name.Name(), a.Name)
		}
		if slices.Contains(owned(f), a.Name) {
			return api.Errorf(http.StatusConflict, "", "%s is a name of %s itself: choose another one for the adapter", a.Name, f.Name.Name())
		}
		if slices.ContainsFunc(f.Runtime.Adapters[:k], func(o api.Adapter) bool { return o.Name == a.Name }) {
			return api.BadRequest("name", "the function %s declares the adapter %s twice", f.Name.Name(), a.Name)
		}
	}
	return nil
}

func owned(f api.Function) []api.ModelName {
	return append(f.Names(), api.ModelName(f.Name.Name()), api.ModelName(f.Name))
}

// bring has instances load the adapters that a declaration adds. After an error they keep the old ones. If they can't load any it returns
// true: they must be replaced.
func (s *server) bring(ctx context.Context, f api.Function) (anew bool, err error) {
	old, known := s.declaration(f.Name)
	if !known || !onlyAdapters(old, f) || slices.Equal(old.Runtime.Adapters, f.Runtime.Adapters) {
		return false, nil
	}
	all := slices.Clone(f.Runtime.Adapters)
	for _, a := range old.Runtime.Adapters {
		if !slices.ContainsFunc(all, func(b api.Adapter) bool { return b.Name == a.Name }) {
			all = append(all, a)
		}
	}
	for _, i := range s.present(f.Name) {
		_, err := s.agent.adapters(ctx, i.Instance, all)
		if err == nil {
			continue
		}
		e := api.AsError(err)
		anew = anew || e.Status == http.StatusNotImplemented
		if e.Status < http.StatusBadRequest || e.Status >= http.StatusInternalServerError && e.Code != api.CodeRuntimeFailed {
			continue // it is told again, or replaced
		}
		s.tellAdapters(ctx, old)
		return false, err
	}
	return anew, nil
}

// present returns the instances that can be called.
func (s *server) present(name api.FunctionName) []api.InstanceStatus {
	v, _ := s.autoscaler.Status(name)
	return slices.DeleteFunc(slices.Clone(v.Instances), func(i api.InstanceStatus) bool {
		return i.Endpoint == "" || i.State != api.Awake && i.State != api.Asleep && i.State != api.Draining
	})
}

// tellAdapters leaves those that don't answer to the autoscaler.
func (s *server) tellAdapters(ctx context.Context, f api.Function) {
	ctx, cancel := context.WithTimeout(ctx, adaptersTime)
	defer cancel()
	for _, i := range s.present(f.Name) {
		status, err := s.agent.adapters(ctx, i.Instance, f.Runtime.Adapters)
		if err != nil {
			s.cfg.Logger.Debug("an instance has not taken its adapters yet", "instance", i.Instance, "error", err)
			continue
		}
		s.activator.ObserveInstance(status)
		s.autoscaler.ObserveInstance(status)
	}
}

func (s *server) addAdapter(w http.ResponseWriter, r *http.Request) {
	var a api.Adapter
	if !decodeBody(w, r, &a, `adapter, such as {"name":"sql","path":"hf://org/sql-lora"}`) {
		return
	}
	if other, taken := s.taken(s.named(r), a.Name); taken {
		api.WriteError(w, api.Errorf(http.StatusConflict, "", "%s is a name of %s: choose another one for the adapter", a.Name, other))
		return
	}
	s.changeAdapters(w, r, a.Name, func(list []api.Adapter) ([]api.Adapter, string) {
		k := slices.IndexFunc(list, func(b api.Adapter) bool { return b.Name == a.Name })
		switch {
		case k < 0:
			return append(list, a), "added"
		case list[k].Path == a.Path:
			return list, "unchanged"
		}
		list[k].Path = a.Path
		return list, "changed"
	})
}

func (s *server) removeAdapter(w http.ResponseWriter, r *http.Request) {
	name := api.ModelName(mux.Vars(r)["adapter"])
	s.changeAdapters(w, r, name, func(list []api.Adapter) ([]api.Adapter, string) {
		n := len(list)
		list = slices.DeleteFunc(list, func(b api.Adapter) bool { return b.Name == name })
		if len(list) == n {
			return nil, ""
		}
		return list, "removed"
	})
}

// taken reports whether a name means another function than by, or its adapter.
func (s *server) taken(by api.FunctionName, name api.ModelName) (api.FunctionName, bool) {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	for other, f := range s.functions {
		if other != by && (slices.Contains(owned(f), name) || slices.ContainsFunc(f.Runtime.Adapters, func(a api.Adapter) bool { return a.Name == name })) {
			return other, true
		}
	}
	return "", false
}

// changeAdapters takes an empty result for an unknown adapter.
func (s *server) changeAdapters(w http.ResponseWriter, r *http.Request, name api.ModelName, change func([]api.Adapter) ([]api.Adapter, string)) {
	s.applying.Lock()
	defer s.applying.Unlock()
	f, known := s.declaration(s.named(r))
	if !known {
		api.WriteError(w, s.admin.Unknown(r.Context(), s.named(r)))
		return
	}
	list, result := change(slices.Clone(f.Runtime.Adapters))
	if result == "" {
		api.WriteError(w, api.Errorf(http.StatusNotFound, "", "%s declares no adapter %s: rouse adapters ls lists them", s.named(r).Name(), name))
		return
	}
	f.Runtime.Adapters = list
	if _, err := s.declare(r.Context(), f); err != nil {
		api.WriteError(w, err)
		return
	}
	answer := admin.Adapter{Function: s.named(r), Name: name, Loaded: []api.InstanceID{}}
	v, _ := s.autoscaler.Status(s.named(r))
	v.Function = v.Function.Redacted()
	for _, a := range admin.Adapters(v) {
		if a.Name == name {
			answer = a
		}
	}
	answer.Result = result
	api.WriteJSON(w, http.StatusOK, answer)
}
