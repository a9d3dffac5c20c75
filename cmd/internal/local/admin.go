package local

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/tail"
)

// maxDeclaration bounds the body of a declaration.
const maxDeclaration = 1 << 20

// adminHandler serves the administrative API. It is meant for the user's own
// socket; see guard for the front door.
func (s *server) adminHandler() http.Handler {
	r := mux.NewRouter()
	r.HandleFunc(admin.PathInfo, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.info) }).Methods(http.MethodGet)
	r.HandleFunc(admin.PathDevices, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.autoscaler.Devices()) }).Methods(http.MethodGet)
	r.HandleFunc(control.PathEvents, s.takeEvent).Methods(http.MethodPost)
	r.HandleFunc(control.PathEvents, s.tailEvents).Methods(http.MethodGet)
	r.HandleFunc(admin.PathFunctions, s.listFunctions).Methods(http.MethodGet)
	r.HandleFunc(admin.PathFunctions, s.declareFunction).Methods(http.MethodPost)
	f := r.PathPrefix(admin.PathFunctions + "/{namespace}/{name}").Subrouter()
	f.HandleFunc("", s.describeFunction).Methods(http.MethodGet)
	f.HandleFunc("", s.removeFunction).Methods(http.MethodDelete)
	f.HandleFunc("/wake", s.byHand(func(r *http.Request, name api.FunctionName) error { return s.autoscaler.Wake(r.Context(), name) })).Methods(http.MethodPost)
	f.HandleFunc("/sleep", s.byHand(s.sleepFunction)).Methods(http.MethodPost)
	f.HandleFunc("/stop", s.byHand(func(r *http.Request, name api.FunctionName) error { return s.autoscaler.Stop(r.Context(), name) })).Methods(http.MethodPost)
	f.HandleFunc("/scale", s.byHand(func(r *http.Request, name api.FunctionName) error {
		scale, lifetime, err := admin.ReadScale(r.Body)
		if err != nil {
			return err
		}
		return s.autoscaler.Scale(r.Context(), name, scale.Replicas, lifetime, scale.By)
	})).Methods(http.MethodPut, http.MethodPost)
	f.HandleFunc("/adapters", s.listAdapters).Methods(http.MethodGet)
	f.HandleFunc("/adapters", s.addAdapter).Methods(http.MethodPost)
	f.HandleFunc("/adapters/{adapter:.+}", s.removeAdapter).Methods(http.MethodDelete)
	f.HandleFunc("/logs", s.tailLogs).Methods(http.MethodGet)
	f.HandleFunc("/why", s.why).Methods(http.MethodGet)
	f.HandleFunc("/wakes", s.wakes).Methods(http.MethodGet)
	r.NotFoundHandler = refuse(http.StatusNotFound, "there is no such administrative path")
	r.MethodNotAllowedHandler = refuse(http.StatusMethodNotAllowed, "this administrative path takes another method")
	return r
}

func refuse(status int, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, api.Errorf(status, api.CodeUnknownPath, "%s %s: %s", r.Method, r.URL.Path, message))
	})
}

// guard lets bearers of the administrative token through to next. Others are not told where it is
// or what is wrong with it: that is logged.
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

// isAdmin says whether a request bears the administrative token.
func (s *server) isAdmin(r *http.Request) bool {
	got, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
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

// mayList says who may see which functions there are, and the metrics, where others than this machine
// reach the front door.
func (s *server) mayList(r *http.Request) bool {
	p := s.cfg.Peers.Peer(r)
	return p.Local || p.Trusted || s.isAdmin(r)
}

// waits says what a function waits for.
func (s *server) waits(name api.FunctionName) string {
	v, _ := s.autoscaler.Status(name)
	return v.Waits
}

func (s *server) listFunctions(w http.ResponseWriter, _ *http.Request) {
	list := []admin.Function{}
	for _, v := range s.autoscaler.List() {
		list = append(list, s.view(v))
	}
	api.WriteJSON(w, http.StatusOK, list)
}

func (s *server) view(v decide.View) admin.Function {
	stats, _ := s.activator.Stats(v.Function.Name)
	v.Function.Runtime.Env = nil // may hold secrets
	return admin.Function{View: v, Activator: stats}
}

func (s *server) describeFunction(w http.ResponseWriter, r *http.Request) {
	v, found := s.autoscaler.Status(named(r))
	if !found {
		api.WriteError(w, s.unknown(named(r)))
		return
	}
	api.WriteJSON(w, http.StatusOK, s.view(v))
}

func (s *server) declareFunction(w http.ResponseWriter, r *http.Request) {
	var f api.Function
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDeclaration))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		api.WriteError(w, api.BadRequest("", "the body is no function: %v", err))
		return
	}
	change, err := s.declare(r.Context(), f)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	stats, _ := s.activator.Stats(f.Name)
	s.declaring.Lock()
	declared := s.functions[f.Name]
	s.declaring.Unlock()
	api.WriteJSON(w, http.StatusOK, admin.Declared{Function: f.Name, Result: change, LostNames: stats.LostNames, Doubts: s.doubts(declared)})
}

func (s *server) removeFunction(w http.ResponseWriter, r *http.Request) {
	if err := s.remove(named(r)); err != nil {
		api.WriteError(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, admin.Declared{Function: named(r), Result: "removed"})
}

func (s *server) sleepFunction(r *http.Request, name api.FunctionName) error {
	level := 0
	if text := r.URL.Query().Get("level"); text != "" {
		var err error
		if level, err = strconv.Atoi(text); err != nil || level < 1 {
			return api.BadRequest("level", "level %q: want 1 or 2", text)
		}
	}
	return s.autoscaler.Sleep(r.Context(), name, api.Level(level))
}

// byHand carries out an order on a function and answers with the function.
func (s *server) byHand(order func(*http.Request, api.FunctionName) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, found := s.autoscaler.Status(named(r)); !found {
			api.WriteError(w, s.unknown(named(r)))
			return
		}
		s.activator.Report(named(r)) // an order is refused while requests wait: those of now count
		if err := order(r, named(r)); err != nil {
			api.WriteError(w, err)
			return
		}
		s.describeFunction(w, r)
	}
}

func (s *server) why(w http.ResponseWriter, r *http.Request) {
	if _, found := s.autoscaler.Status(named(r)); !found {
		api.WriteError(w, s.unknown(named(r)))
		return
	}
	api.WriteJSON(w, http.StatusOK, append([]api.Decision{}, s.autoscaler.Why(named(r))...))
}

func (s *server) wakes(w http.ResponseWriter, r *http.Request) {
	if _, found := s.autoscaler.Status(named(r)); !found {
		api.WriteError(w, s.unknown(named(r)))
		return
	}
	api.WriteJSON(w, http.StatusOK, append([]api.Outline{}, s.autoscaler.Outlines(named(r))...))
}

func (s *server) tailLogs(w http.ResponseWriter, r *http.Request) {
	if _, found := s.autoscaler.Status(named(r)); !found {
		api.WriteError(w, s.unknown(named(r)))
		return
	}
	n, follow := tail.Parameters(r, -1)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	_ = s.agent.followLog(r.Context(), named(r), n, follow, func(line string) error {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
		return rc.Flush()
	}) // only the client's own leaving ends it
}

// takeEvent receives what instances report.
func (s *server) takeEvent(w http.ResponseWriter, r *http.Request) {
	e, err := cloudevent.Receive(r)
	if err == nil && e.Type != api.EventInstanceState {
		err = api.BadRequest("type", "event %s has the type %q: want %s", e.ID, e.Type, api.EventInstanceState)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	s.bus.Emit(e)
	w.WriteHeader(http.StatusAccepted)
}

// tailEvents writes events, all or those of one function.
func (s *server) tailEvents(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("function")
	s.bus.Serve(w, r, func(subject string) bool { return name == "" || subject == name })
}

func (s *server) unknown(name api.FunctionName) error {
	var known []string
	for _, v := range s.autoscaler.List() {
		known = append(known, render.Name(v.Function.Name))
	}
	return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %s; there are: %s", render.Name(name), strings.Join(known, ", "))
}

func named(r *http.Request) api.FunctionName {
	v := mux.Vars(r)
	return api.NewFunctionName(v["namespace"], v["name"])
}
