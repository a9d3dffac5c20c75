package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/internal/admin"
	"github.com/rouse-dev/rouse/internal/tail"
)

// adminRoutes adds the administrative API.
func (s *server) adminRoutes(r *mux.Router) {
	get := func(path string, h http.HandlerFunc) {
		r.HandleFunc(path, s.admitted(h)).Methods(http.MethodGet)
	}
	get(admin.PathInfo, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.Info()) })
	get(admin.PathDevices, func(w http.ResponseWriter, _ *http.Request) { api.WriteJSON(w, http.StatusOK, s.Decider.Devices()) })
	get(admin.PathFunctions, s.listFunctions)
	one := admin.PathFunctions + "/{namespace}/{name}"
	get(one, s.known(s.describe))
	get(one+"/why", s.known(func(w http.ResponseWriter, _ *http.Request, v decide.View) {
		api.WriteJSON(w, http.StatusOK, append([]api.Decision{}, s.Decider.Why(v.Function.Name)...))
	}))
	get(one+"/wakes", s.known(func(w http.ResponseWriter, _ *http.Request, v decide.View) {
		api.WriteJSON(w, http.StatusOK, append([]api.Outline{}, s.Decider.Outlines(v.Function.Name)...))
	}))
	get(one+"/logs", s.known(s.tailLogs))
	for path, order := range map[string]order{
		"/wake": func(r *http.Request, f api.FunctionName) error { return s.Decider.Wake(r.Context(), f) },
		"/stop": func(r *http.Request, f api.FunctionName) error { return s.Decider.Stop(r.Context(), f) },
		"/sleep": func(r *http.Request, f api.FunctionName) error {
			level, err := level(r)
			if err != nil {
				return err
			}
			return s.Decider.Sleep(r.Context(), f, level)
		},
	} {
		r.HandleFunc(one+path, s.admitted(s.known(s.byHand(order)))).Methods(http.MethodPost)
	}
	r.HandleFunc(one+"/scale", s.admitted(s.known(s.scale))).Methods(http.MethodPut, http.MethodPost) // people may create at the API server's proxy, not update
}

// order is something that people may have done with a function.
type order func(r *http.Request, f api.FunctionName) error

// about is a handler of a path of one function.
type about func(w http.ResponseWriter, r *http.Request, v decide.View)

// known finds the function that a request is about: the one of that name, or
// of a service's revisions the one with most traffic.
func (s *server) known(next about) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		vars := mux.Vars(r)
		name := api.NewFunctionName(vars["namespace"], vars["name"])
		for _, f := range s.Fleet.Resolve(name) {
			if v, found := s.Decider.Status(f); found {
				next(w, r, v)
				return
			}
		}
		api.WriteError(w, s.unknown(name))
	}
}

// maxListed bounds the names in an error.
const maxListed = 20

func (s *server) unknown(name api.FunctionName) error {
	var there []string
	for _, v := range s.Decider.List() {
		there = append(there, string(v.Function.ServiceName()))
	}
	slices.Sort(there)
	there = slices.Compact(there)
	rest := ""
	if len(there) > maxListed {
		there, rest = there[:maxListed], ", …"
	}
	if len(there) == 0 {
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %.300s, and no other: a Knative Service is one if its revision has the annotation %s: %s",
			name, api.AnnotationClass, api.Class)
	}
	return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %.300s; there are: %s%s", name, strings.Join(there, ", "), rest)
}

// asking bounds the calls to activators for one list.
const asking = 16

func (s *server) listFunctions(w http.ResponseWriter, r *http.Request) {
	views := s.Decider.List()
	list := make([]admin.Function, len(views))
	places := make(chan struct{}, asking)
	var all sync.WaitGroup
	for k, v := range views {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			list[k] = s.view(r.Context(), v)
		})
	}
	all.Wait()
	api.WriteJSON(w, http.StatusOK, list)
}

func (s *server) view(ctx context.Context, v decide.View) admin.Function {
	v.Function.Runtime.Env = nil // may hold secrets
	return admin.Function{View: v, Activator: s.Activators.Stats(ctx, v.Function.Name)}
}

func (s *server) describe(w http.ResponseWriter, r *http.Request, v decide.View) {
	api.WriteJSON(w, http.StatusOK, s.view(r.Context(), v))
}

func level(r *http.Request) (api.Level, error) {
	text := r.URL.Query().Get("level")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < int(api.Level1) || n > int(api.Level2) {
		return 0, api.BadRequest("level", "level %.20q: want 1 or 2", text)
	}
	return api.Level(n), nil
}

// byHand carries out an order on a function and answers with the function.
func (s *server) byHand(do order) about {
	return func(w http.ResponseWriter, r *http.Request, v decide.View) {
		name := v.Function.Name
		s.Activators.Report(r.Context(), name) // an order is refused while requests wait: those of now count
		if err := do(r, name); err != nil {
			api.WriteError(w, err)
			return
		}
		if now, found := s.Decider.Status(name); found {
			v = now
		}
		s.describe(w, r, v)
	}
}

// scale sets how many instances are wanted, and answers with what the autoscaler
// knows of the function: a brain says it again and again, so activators are not asked.
func (s *server) scale(w http.ResponseWriter, r *http.Request, v decide.View) {
	scale, lifetime, err := admin.ReadScale(r.Body)
	if err == nil {
		err = s.Decider.Scale(r.Context(), v.Function.Name, scale.Replicas, lifetime, scale.By)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	if now, found := s.Decider.Status(v.Function.Name); found {
		v = now
	}
	v.Function.Runtime.Env = nil // may hold secrets
	api.WriteJSON(w, http.StatusOK, admin.Function{View: v})
}

// tailLogs passes on what the function's instances print, each line after the
// instance's name where there are several.
func (s *server) tailLogs(w http.ResponseWriter, r *http.Request, v decide.View) {
	n, follow := tail.Parameters(r, -1)
	var sources []logSource
	var failed error
	for _, i := range v.Instances {
		client, endpoint, err := s.Fleet.Reach(i.Instance)
		if err == nil {
			var body io.ReadCloser
			if body, err = client.Logs(r.Context(), endpoint, n, follow); err == nil {
				defer body.Close()
				sources = append(sources, logSource{string(i.Instance), body})
				continue
			}
		}
		failed = fmt.Errorf("read the log of %s: %w", i.Instance, err)
	}
	if len(sources) == 0 && failed != nil {
		api.WriteError(w, failed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &lines{w: w, flush: http.NewResponseController(w)}
	if failed != nil {
		out.write("", failed.Error())
	}
	_ = out.flush.Flush() // the header, before the first line comes
	var all sync.WaitGroup
	for _, src := range sources {
		prefix := ""
		if len(v.Instances) > 1 {
			prefix = src.name + " | "
		}
		all.Go(func() { src.copy(out, prefix) })
	}
	all.Wait()
}

// logSource is one instance's output.
type logSource struct {
	name string
	body io.Reader
}

// maxLine bounds one line of a log; a longer one is cut into several.
const maxLine = 64 << 10

func (l logSource) copy(out *lines, prefix string) {
	in := bufio.NewReaderSize(l.body, maxLine)
	for {
		line, _, err := in.ReadLine()
		if err != nil { // the instance or the reader has left
			return
		}
		out.write(prefix, string(line))
	}
}

// lines writes lines from several goroutines, each whole and at once.
type lines struct {
	mu    sync.Mutex // guards w
	w     io.Writer
	flush *http.ResponseController
}

func (l *lines) write(prefix, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, prefix+line+"\n") // a reader that has left ends the request's context
	_ = l.flush.Flush()
}

// tailEvents writes events, all or those of one function.
func (s *server) tailEvents(w http.ResponseWriter, r *http.Request) {
	s.Events.Serve(w, r, s.subjects(r.URL.Query().Get("function")))
}

// subjects says which events are about a function: those of its revisions, today's and later ones.
func (s *server) subjects(name string) func(subject string) bool {
	if name == "" {
		return func(string) bool { return true }
	}
	return func(subject string) bool {
		return subject == name || slices.Contains(s.Fleet.Resolve(api.FunctionName(name)), api.FunctionName(subject))
	}
}
