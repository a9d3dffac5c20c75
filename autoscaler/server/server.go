// Package server is the autoscaler's HTTP interface. It decides nothing and knows nothing of Kubernetes. [Admin] serves
// the administrative API on one machine and in a cluster; all else is for a cluster.
//
// Three kinds of callers use [Handler]:
//
//   - Instances join and report their state, with a token of their own. The fleet checks that token and address belong
//     together; this package bounds number, rate and size of requests, because any pod may call.
//   - Activators report demand, with the cluster's token.
//   - Tools use the administrative API, with the cluster's token. The API server's proxy removes the Authorization header,
//     hence [HeaderToken].
package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// Decider is the autoscaler.
type Decider interface {
	Receive(e api.Event) error
	List() []admin.Function
	Status(name api.FunctionName) (admin.Function, bool)
	Why(name api.FunctionName) []api.Decision
	WakeTraces(name api.FunctionName) []api.WakeTrace
	Devices() []admin.Device
	Usage(q admin.UsageQuery) admin.Usage
	History(after uint64) admin.History
	CopyRecord(w io.Writer) error
	Wake(ctx context.Context, name api.FunctionName) error
	Sleep(ctx context.Context, name api.FunctionName, level api.Level) error
	Stop(ctx context.Context, name api.FunctionName) error
	Scale(ctx context.Context, name api.FunctionName, replicas int, lifetime time.Duration, by string) error
}

// Fleet knows the pods. Its errors are *[api.Error]: Join fails with 404 for an unknown pod, Report if the instance has
// to join first, and both with 403 for a wrong sender. See package knative.
type Fleet interface {
	Join(ctx context.Context, r control.RegisterRequest, from netip.Addr, token string) (control.RegisterAnswer, error)
	Report(s api.InstanceStatus, from netip.Addr, token string) error
	Resolve(name api.FunctionName) []api.FunctionName
	Reach(id api.InstanceID) (*control.Client, api.Endpoint, error)
}

// Info is the administrative API's information about a cluster.
type Info struct {
	Version string `json:"version"`
	// URL is the front door's within the cluster.
	URL string `json:"url"`
	// Leader is the answering pod.
	Leader     string          `json:"leader"`
	Started    time.Time       `json:"started"`
	Activators []ActivatorInfo `json:"activators"`
	// Problem says what the operator has to do first.
	Problem string `json:"problem,omitempty"`
}

// ActivatorInfo is one activator's pod.
type ActivatorInfo struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
}

// Config holds a [Handler]'s dependencies. All are required.
type Config struct {
	Decider    Decider
	Fleet      Fleet
	Activators *Activators
	// Events is only read.
	Events *cloudevent.Log
	// While Token returns "" no request is trusted.
	Token func() string
	Info  func() Info
	Log   *slog.Logger
}

type server struct {
	Config
	callers *callers
}

// Handler serves all of the autoscaler's paths.
func Handler(cfg Config) (http.Handler, error) {
	if cfg.Decider == nil || cfg.Fleet == nil || cfg.Activators == nil || cfg.Events == nil || cfg.Token == nil || cfg.Info == nil || cfg.Log == nil {
		return nil, errors.New("autoscaler's server: a part is missing")
	}
	s := &server{Config: cfg, callers: newCallers()}
	r := mux.NewRouter().UseEncodedPath()
	r.HandleFunc(control.PathRegister, s.join).Methods(http.MethodPost)
	r.HandleFunc(control.PathEvents, s.receive).Methods(http.MethodPost)
	s.admin().Routes(r, s.admitted)
	r.NotFoundHandler = refuse(http.StatusNotFound, "there is no such path at the autoscaler; it has "+
		control.PathEvents+", "+control.PathRegister+", "+admin.PathInfo+", "+admin.PathDevices+" and "+admin.PathFunctions)
	r.MethodNotAllowedHandler = refuse(http.StatusMethodNotAllowed, "this path takes another method")
	return r, nil
}

func refuse(status int, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, api.Errorf(status, api.CodeUnknownPath, "%s %.200s: %s", r.Method, r.URL.Path, message))
	})
}
