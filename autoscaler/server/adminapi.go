package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/mux"
	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// AdminConfig holds an [Admin]'s dependencies. All but Resolve are required.
type AdminConfig struct {
	Decider Decider
	Info    func() any
	// Resolve returns the functions of a name, the one with most traffic first; nil: the name itself.
	Resolve func(name api.FunctionName) []api.FunctionName
	// Report has activators send their view to the autoscaler now.
	Activity func(ctx context.Context, name api.FunctionName) api.Activity
	Report   func(ctx context.Context, name api.FunctionName)
	Clusters func(ctx context.Context) []admin.Cluster
	Picks    func(ctx context.Context, request string) []api.Pick
	// Far is [Activators.Far].
	Far func(ctx context.Context, name api.FunctionName) []admin.Far
	// Logs opens the instances' output: the last n lines and, with follow, each further one. pass, which is called once,
	// calls line from one goroutine at a time.
	Logs   func(ctx context.Context, v admin.Function, n int, follow bool) (pass func(line func(string) error), err error)
	Events *cloudevent.Log
	// None is added to the error if there are no functions.
	None string
}

// Admin serves the administrative API (package api/admin), on one machine and in a cluster. Its caller authorizes
// requests. It is safe for concurrent use.
type Admin struct {
	cfg   AdminConfig
	board *board
}

// NewAdmin returns a server of the API.
func NewAdmin(cfg AdminConfig) *Admin {
	if cfg.Resolve == nil {
		cfg.Resolve = func(name api.FunctionName) []api.FunctionName { return []api.FunctionName{name} }
	}
	s := &Admin{cfg: cfg}
	s.board = &board{server: s}
	s.board.clear()
	return s
}

// Routes adds the API's handlers to r, each wrapped by admit.
func (s *Admin) Routes(r *mux.Router, admit func(http.HandlerFunc) http.HandlerFunc) {
	add := func(path string, h http.HandlerFunc, methods ...string) {
		r.HandleFunc(path, admit(h)).Methods(methods...)
	}
	add(control.PathEvents, s.events, http.MethodGet)
	add(admin.PathInfo, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.cfg.Info()) }, http.MethodGet)
	add(admin.PathDevices, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.cfg.Decider.Devices()) }, http.MethodGet)
	add(admin.PathUsage, s.usage, http.MethodGet)
	add(admin.PathHistory, s.history, http.MethodGet)
	add(admin.PathRecord, s.record, http.MethodGet)
	add(admin.PathClusters, func(w http.ResponseWriter, r *http.Request) {
		api.WriteJSON(w, http.StatusOK, append([]admin.Cluster{}, s.cfg.Clusters(r.Context())...))
	}, http.MethodGet)
	add(admin.PathPicks, func(w http.ResponseWriter, r *http.Request) {
		api.WriteJSON(w, http.StatusOK, append([]api.Pick{}, s.cfg.Picks(r.Context(), r.FormValue("request"))...))
	}, http.MethodGet)
	add(admin.PathWatch, s.watch, http.MethodGet)
	add(admin.PathFunctions, s.list, http.MethodGet)
	add(admin.PathFunctions+"/logs", s.allLogs, http.MethodGet)
	one := admin.PathFunctions + "/{namespace}/{name}"
	add(one, s.seen(s.describe, func(w http.ResponseWriter, r *http.Request, far admin.Far) {
		api.WriteJSON(w, http.StatusOK, s.farView(r.Context(), far))
	}), http.MethodGet)
	add(one+"/why", s.seen(s.why, func(w http.ResponseWriter, _ *http.Request, far admin.Far) {
		api.WriteJSON(w, http.StatusOK, append([]api.Decision{}, far.Why...))
	}), http.MethodGet)
	add(one+"/wakes", s.seen(s.wakes, func(w http.ResponseWriter, _ *http.Request, far admin.Far) {
		api.WriteJSON(w, http.StatusOK, append([]api.WakeTrace{}, far.Wakes...))
	}), http.MethodGet)
	add(one+"/adapters", s.Known(func(w http.ResponseWriter, _ *http.Request, v admin.Function) {
		v.Function = v.Function.Redacted()
		api.WriteJSON(w, http.StatusOK, admin.Adapters(v))
	}), http.MethodGet)
	add(one+"/logs", s.Known(s.logs), http.MethodGet)
	for path, o := range map[string]order{
		"/wake":  func(r *http.Request, f api.FunctionName) error { return s.cfg.Decider.Wake(r.Context(), f) },
		"/sleep": s.sleep,
		"/stop":  func(r *http.Request, f api.FunctionName) error { return s.cfg.Decider.Stop(r.Context(), f) },
	} {
		add(one+path, s.Known(s.byHand(o)), http.MethodPost)
	}
	add(one+"/scale", s.Known(s.scale), http.MethodPut, http.MethodPost) // with the permission to create, the API server's proxy passes POST only
}

func (s *Admin) usage(w http.ResponseWriter, r *http.Request) {
	q, err := admin.UsageQueryOf(r.URL.Query())
	if err != nil {
		api.WriteError(w, api.AsError(err))
		return
	}
	api.WriteJSON(w, http.StatusOK, s.cfg.Decider.Usage(q))
}

func (s *Admin) history(w http.ResponseWriter, r *http.Request) {
	after := uint64(0)
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			api.WriteError(w, api.BadRequest("after", "after is %.40q: want the seq of an earlier answer", text))
			return
		}
	}
	api.WriteJSON(w, http.StatusOK, s.cfg.Decider.History(after))
}

// record aborts the connection if reading fails after the start.
func (s *Admin) record(w http.ResponseWriter, _ *http.Request) {
	out := &begun{w: w}
	if err := s.cfg.Decider.CopyRecord(out); err != nil {
		if out.is {
			panic(http.ErrAbortHandler)
		}
		api.WriteError(w, err)
	}
}

type begun struct {
	w  http.ResponseWriter
	is bool
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.is {
		b.w.Header().Set("Content-Type", "application/octet-stream")
		b.is = true
	}
	return b.w.Write(p)
}

type order func(r *http.Request, f api.FunctionName) error

func (s *Admin) sleep(r *http.Request, f api.FunctionName) error {
	level := 0
	if text := r.URL.Query().Get("level"); text != "" {
		var err error
		if level, err = strconv.Atoi(text); err != nil || level < int(api.Level1) || level > int(api.Suspended) {
			return api.BadRequest("level", "level %.20q: want 1, 2 or 3", text)
		}
	}
	return s.cfg.Decider.Sleep(r.Context(), f, api.Level(level))
}

// Known finds the function of a request's name, or of a service's revisions the one with most traffic.
func (s *Admin) Known(next func(w http.ResponseWriter, r *http.Request, v admin.Function)) http.HandlerFunc {
	return s.seen(next, nil)
}

const maxListed = 20

// Unknown returns the error for a name of no function here. It lists the existing ones, or the clusters that have it.
func (s *Admin) Unknown(ctx context.Context, name api.FunctionName) error {
	var there []string
	for _, far := range s.cfg.Far(ctx, "") {
		if far.Function.Function.Name == name {
			return elsewhere(name, far)
		}
		there = append(there, far.Function.Function.Name.Short())
	}
	for _, v := range s.cfg.Decider.List() {
		there = append(there, v.Function.ServiceName().Short())
	}
	slices.Sort(there)
	there = slices.Compact(there)
	rest := ""
	if len(there) > maxListed {
		there, rest = there[:maxListed], ", …"
	}
	if len(there) == 0 {
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %.300s, and no other%s", name.Short(), s.cfg.None)
	}
	return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %.300s; there are: %s%s", name.Short(), strings.Join(there, ", "), rest)
}

const asking = 16

func (s *Admin) list(w http.ResponseWriter, r *http.Request) {
	views := s.cfg.Decider.List()
	list := make([]admin.Function, len(views))
	var all errgroup.Group
	all.SetLimit(asking)
	for k, v := range views {
		all.Go(func() error {
			list[k] = s.view(r.Context(), v)
			return nil
		})
	}
	_ = all.Wait() // never an error
	known := map[api.FunctionName]bool{}
	for _, v := range views {
		known[v.Function.ServiceName()] = true
	}
	for _, far := range s.cfg.Far(r.Context(), "") {
		if !known[far.Function.Function.Name] {
			list = append(list, s.farView(r.Context(), far))
		}
	}
	slices.SortStableFunc(list, func(a, b admin.Function) int { return cmp.Compare(a.Function.Name, b.Function.Name) })
	api.WriteJSON(w, http.StatusOK, list)
}

func (s *Admin) view(ctx context.Context, v admin.Function) admin.Function {
	v.Function = v.Function.Redacted()
	v.Activator = s.cfg.Activity(ctx, v.Function.Name)
	return v
}

func (s *Admin) describe(w http.ResponseWriter, r *http.Request, v admin.Function) {
	api.WriteJSON(w, http.StatusOK, s.view(r.Context(), v))
}

func (s *Admin) byHand(do order) func(w http.ResponseWriter, r *http.Request, v admin.Function) {
	return func(w http.ResponseWriter, r *http.Request, v admin.Function) {
		name := v.Function.Name
		s.cfg.Report(r.Context(), name) // orders are refused while requests wait
		if err := do(r, name); err != nil {
			api.WriteError(w, err)
			return
		}
		if now, found := s.cfg.Decider.Status(name); found {
			v = now
		}
		s.describe(w, r, v)
	}
}

// scale does not ask activators: external autoscalers repeat it all the time.
func (s *Admin) scale(w http.ResponseWriter, r *http.Request, v admin.Function) {
	scale, lifetime, err := admin.ReadScale(r.Body)
	if err == nil {
		err = s.cfg.Decider.Scale(r.Context(), v.Function.Name, scale.Replicas, lifetime, scale.By)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	if now, found := s.cfg.Decider.Status(v.Function.Name); found {
		v = now
	}
	v.Function = v.Function.Redacted()
	api.WriteJSON(w, http.StatusOK, v)
}

// logs passes on the output of the function's instances.
func (s *Admin) logs(w http.ResponseWriter, r *http.Request, v admin.Function) {
	n, follow := cloudevent.Parameters(r, -1)
	pass, err := s.cfg.Logs(r.Context(), v, n, follow)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	pass(lineWriter(w))
}

// allLogs puts a function's name before its lines.
func (s *Admin) allLogs(w http.ResponseWriter, r *http.Request) {
	n, follow := cloudevent.Parameters(r, -1)
	write := lineWriter(w)
	var mu sync.Mutex // held by the one that writes
	var all sync.WaitGroup
	for _, v := range s.cfg.Decider.List() {
		if len(v.Instances) == 0 && v.LastError == "" {
			continue
		}
		all.Go(func() {
			pass, err := s.cfg.Logs(r.Context(), v, n, follow)
			if err != nil {
				return // it has nothing to print
			}
			pass(func(line string) error {
				mu.Lock()
				defer mu.Unlock()
				return write(string(v.Function.Name) + "  " + line)
			})
		})
	}
	all.Wait()
}

// lineWriter's function fails if the reader has left.
func lineWriter(w http.ResponseWriter) func(line string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rc := http.NewResponseController(w)
	_ = rc.Flush() // send the header before the first line
	return func(line string) error {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
		return rc.Flush()
	}
}

// events writes events, all or those of one function, present and future revisions included.
func (s *Admin) events(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("function")
	s.cfg.Events.Serve(w, r, func(subject string) bool {
		return name == "" || subject == name || slices.Contains(s.cfg.Resolve(api.FunctionName(name)), api.FunctionName(subject))
	})
}
