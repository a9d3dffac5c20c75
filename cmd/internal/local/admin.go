package local

import (
	"context"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	adminapi "github.com/rouse-dev/rouse/autoscaler/server"
)

const maxDeclaration = 1 << 20

// decider has the activator tell the use so far before it is reported.
type decider struct {
	adminapi.Decider
	tellUse func(now time.Time)
}

func (d decider) Usage(q admin.UsageQuery) admin.Usage {
	d.tellUse(time.Now())
	return d.Decider.Usage(q)
}

func (s *server) newAdmin() *adminapi.Admin {
	return adminapi.NewAdmin(adminapi.AdminConfig{
		Decider: decider{s.autoscaler, s.activator.TellUse}, Info: func() any { return s.describe() }, Events: s.bus, None: ": declare one with rouse apply",
		Resolve: func(name api.FunctionName) []api.FunctionName { return []api.FunctionName{s.called(name)} },
		Activity: func(_ context.Context, name api.FunctionName) api.Activity {
			stats, _ := s.activator.Stats(name)
			return stats
		},
		Clusters: func(context.Context) []admin.Cluster {
			if s.far == nil {
				return nil
			}
			return s.far.List()
		},
		Picks: func(_ context.Context, request string) []api.Pick { return s.activator.Picks(request) },
		Far: func(_ context.Context, name api.FunctionName) []admin.Far {
			if s.far == nil {
				return nil
			}
			return s.far.Far(name)
		},
		Report: func(_ context.Context, name api.FunctionName) { s.activator.Report(name) },
		Logs: func(ctx context.Context, v admin.Function, n int, follow bool) (func(func(string) error), error) {
			return func(line func(string) error) { _ = s.agent.followLog(ctx, v.Function.Name, n, follow, line) }, nil // only the client's leaving ends it
		},
	})
}

// adminHandler is for the user's own socket; see guard for the front door. Routes are compiled at the first request.
func (s *server) adminHandler() http.Handler {
	routes := sync.OnceValue(s.adminRoutes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { routes().ServeHTTP(w, r) })
}

// Routes returns the administrative API's routes, to list them.
func Routes() *mux.Router {
	return (&server{admin: adminapi.NewAdmin(adminapi.AdminConfig{})}).adminRoutes()
}

func (s *server) adminRoutes() *mux.Router {
	r := mux.NewRouter()
	s.admin.Routes(r, func(h http.HandlerFunc) http.HandlerFunc { return h })
	r.HandleFunc(admin.PathFunctions, s.declareFunction).Methods(http.MethodPost)
	r.HandleFunc(admin.PathRequests, s.requests.serve).Methods(http.MethodGet)
	r.HandleFunc(admin.PathKeys, s.serveKeys).Methods(http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete)
	r.HandleFunc(admin.PathModels, searchModels).Methods(http.MethodGet)
	r.HandleFunc(admin.PathModels, s.declareModel).Methods(http.MethodPost)
	f := r.PathPrefix(admin.PathFunctions + "/{namespace}/{name}").Subrouter()
	f.HandleFunc("", s.removeFunction).Methods(http.MethodDelete)
	f.HandleFunc("/manifest", s.writeManifest).Methods(http.MethodGet)
	f.HandleFunc("/adapters", s.addAdapter).Methods(http.MethodPost)
	f.HandleFunc("/adapters/{adapter:.+}", s.removeAdapter).Methods(http.MethodDelete)
	r.NotFoundHandler = refuse(http.StatusNotFound, "there is no such administrative path")
	r.MethodNotAllowedHandler = refuse(http.StatusMethodNotAllowed, "this administrative path takes another method")
	return r
}

func refuse(status int, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, api.Errorf(status, api.CodeUnknownPath, "%s %s: %s", r.Method, r.URL.Path, message))
	})
}

// guard wants the administrative token, or the page's.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isAdmin(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			api.WriteError(w, api.Errorf(http.StatusUnauthorized, "", "administrative paths want the token of --admin-token-file as a bearer token"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) isAdmin(r *http.Request) bool {
	got, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.isPage(r) {
		return true
	}
	if !isBearer || s.cfg.AdminToken == nil {
		return false
	}
	want, err := s.cfg.AdminToken()
	if err != nil {
		s.cfg.Logger.Error("nobody is let in by the administrative token", "error", err)
		return false
	}
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// mayList reports whether a request may list functions and read metrics, where others than this machine reach the front door.
func (s *server) mayList(r *http.Request) bool {
	p := s.cfg.Peers.Peer(r)
	return p.Local && s.keys == nil || p.Trusted || s.isAdmin(r)
}

func (s *server) waits(name api.FunctionName) string {
	v, _ := s.autoscaler.Status(name)
	return v.Waits
}

// lastError is for administrators only.
func (s *server) lastError(r *http.Request, name api.FunctionName) string {
	if !s.isAdmin(r) {
		return ""
	}
	v, _ := s.autoscaler.Status(name)
	return v.LastError
}

func (s *server) declareFunction(w http.ResponseWriter, r *http.Request) {
	var f api.Function
	if !decodeBody(w, r, &f, "function") {
		return
	}
	change, err := s.Declare(r.Context(), f)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	stats, _ := s.activator.Stats(f.Name)
	problem := ""
	if declared, _ := s.declaration(f.Name); declared.Clusters == "" {
		problem = s.startProblem(declared)
	}
	api.WriteJSON(w, http.StatusOK, admin.Declared{Function: f.Name, Result: change, LostNames: stats.LostNames, WrongFallbacks: stats.WrongFallbacks, Problem: problem})
}

// decodeBody answers an invalid body.
func decodeBody(w http.ResponseWriter, r *http.Request, to any, what string) bool {
	err := api.Decode(http.MaxBytesReader(w, r.Body, maxDeclaration), to)
	if err != nil {
		api.WriteError(w, api.BadRequest("", "the body is no %s: %v", what, err))
	}
	return err == nil
}

func (s *server) removeFunction(w http.ResponseWriter, r *http.Request) {
	s.applying.Lock() // a change of its adapters would declare it again
	defer s.applying.Unlock()
	name := s.named(r)
	api.Answer(w, admin.Declared{Function: name, Result: "removed"}, s.remove(r.Context(), name))
}

func (s *server) named(r *http.Request) api.FunctionName {
	v := mux.Vars(r)
	return s.called(api.NewFunctionName(v["namespace"], v["name"]))
}

// called also finds a function by a model's name.
func (s *server) called(name api.FunctionName) api.FunctionName {
	if _, found := s.autoscaler.Status(name); found {
		return name
	}
	for _, v := range s.autoscaler.List() {
		if f := v.Function; f.Name.Namespace() == name.Namespace() && slices.Contains(f.Names(), api.ModelName(name.Name())) {
			return f.Name
		}
	}
	return name
}
