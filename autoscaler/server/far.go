package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// seen finds the function of a request like [Admin.Known] or, unless far is nil, among those of other clusters.
func (s *Admin) seen(near func(w http.ResponseWriter, r *http.Request, v admin.Function), far func(w http.ResponseWriter, r *http.Request, far admin.Far)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		vars := mux.Vars(r)
		name := api.NewFunctionName(vars["namespace"], vars["name"])
		for _, f := range s.cfg.Resolve(name) {
			if v, found := s.cfg.Decider.Status(f); found {
				near(w, r, v)
				return
			}
		}
		if far != nil {
			if v, is := s.far(r.Context(), name); is {
				far(w, r, v)
				return
			}
		}
		api.WriteError(w, s.Unknown(r.Context(), name))
	}
}

func (s *Admin) far(ctx context.Context, name api.FunctionName) (admin.Far, bool) {
	for _, far := range s.cfg.Far(ctx, name) {
		return far, true
	}
	return admin.Far{}, false
}

// besides returns the front doors' view of a function that is here too: they don't tell revisions apart, so it belongs
// to the one with most traffic.
func (s *Admin) besides(ctx context.Context, v admin.Function) admin.Far {
	service := v.Function.ServiceName()
	if first := s.cfg.Resolve(service); len(first) > 0 && first[0] != v.Function.Name {
		return admin.Far{}
	}
	far, _ := s.far(ctx, service)
	return far
}

func (s *Admin) farView(ctx context.Context, far admin.Far) admin.Function {
	v := s.view(ctx, far.Function)
	v.Far, v.Clusters = true, far.Clusters
	return v
}

func (s *Admin) why(w http.ResponseWriter, r *http.Request, v admin.Function) {
	list := append([]api.Decision{}, s.cfg.Decider.Why(v.Function.Name)...)
	list = append(list, s.besides(r.Context(), v).Why...)
	if v.Impossible != "" {
		list = append(list, api.Decision{At: time.Now(), Function: v.Function.Name, Action: "impossible", Reason: v.Impossible})
	}
	for _, i := range v.Instances { // the progress of the last decision
		if i.State == api.Starting && i.Message != "" {
			list = append(list, api.Decision{At: time.Now(), Function: v.Function.Name, Instance: i.Instance, Action: "starting", Reason: i.Message})
		}
	}
	api.WriteJSON(w, http.StatusOK, list)
}

func (s *Admin) wakes(w http.ResponseWriter, r *http.Request, v admin.Function) {
	list := append([]api.WakeTrace{}, s.cfg.Decider.WakeTraces(v.Function.Name)...)
	api.WriteJSON(w, http.StatusOK, append(list, s.besides(r.Context(), v).Wakes...))
}

func elsewhere(name api.FunctionName, far admin.Far) error {
	if len(far.Clusters) == 0 {
		return api.Errorf(http.StatusConflict, "", "%s is not here, and no cluster has it now", name.Short())
	}
	return api.Errorf(http.StatusConflict, "", "%s is not here: it is in the clusters %s; give the order there", name.Short(), strings.Join(far.Clusters, ", "))
}
