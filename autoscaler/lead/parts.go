package lead

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"knative.dev/pkg/configmap/informer"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/knative"
	"github.com/rouse-dev/rouse/autoscaler/server"
	"github.com/rouse-dev/rouse/autoscaler/takeover"
	"github.com/rouse-dev/rouse/internal/closing"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/tail"
)

// Limits of the servers.
const (
	headerTimeout  = 5 * time.Second
	maxHeaderBytes = 32 << 10
	idleTimeout    = 2 * time.Minute
	drainTimeout   = 2 * time.Second
	// reconcilers is the number of PodAutoscalers that are reconciled at once.
	reconcilers = 8
)

// leader is the parts of a process that leads.
type leader struct {
	*process
	keeper     *takeover.Keeper
	token      *token
	activators *server.Activators
	pods       *activatorPods
	events     *tail.Log
	sink       *cloudevent.Sender // nil: none
	fleet      *knative.Fleet
	core       *autoscaler.Autoscaler
	started    time.Time
}

// lead builds the leader's parts and runs them until ctx ends or one fails.
func (p *process) lead(ctx context.Context) error {
	l := &leader{process: p, started: time.Now()}
	if err := l.build(); err != nil {
		return err
	}
	// Callers find this process from here on; they wait in the listener's queue until it is served.
	listener, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for instances and activators: %w", err)
	}
	defer listener.Close()
	claiming, claimed := context.WithCancel(ctx)
	var claim sync.WaitGroup
	defer claim.Wait()
	defer claimed()
	claim.Go(func() { l.claim(claiming) })
	if err := l.keeper.Wait(ctx); err != nil {
		return ended(ctx, err)
	}
	if err := l.token.ensure(ctx); err != nil {
		return ended(ctx, err)
	}
	if err := l.fleet.Sync(ctx); err != nil {
		return ended(ctx, fmt.Errorf("read the cluster: %w", err))
	}
	l.core, err = autoscaler.New(autoscaler.Config{Devices: l.fleet.Devices(), Source: l.source(), Policy: decide.Policy{Advice: knative.Advice()}}, l.fleet, l.events, p.log, p.registry)
	if err != nil {
		return err
	}
	l.fleet.Attach(l.core)
	return ended(ctx, l.serve(ctx, listener))
}

// ended is nil where ctx's end, and not the loss of the lease, explains err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLost) {
		return nil
	}
	return err
}

// build makes the parts that need nothing of the cluster yet. It starts nothing.
func (l *leader) build() (err error) {
	l.token = newToken(l.kube, l.log)
	l.activators = server.NewActivators(l.token.current, l.log)
	l.pods = newActivatorPods(l.kube, l.activators.Set)
	l.keeper = takeover.NewKeeper(takeover.Config{Kube: l.kube, AllowUntested: l.cfg.AllowUntested,
		ReadyActivators: func() int { return int(l.pods.ready.Load()) }, Log: l.log})
	l.events = tail.New()
	if l.cfg.Sink != "" {
		if l.sink, err = cloudevent.NewSender(cloudevent.SenderConfig{URL: l.cfg.Sink, Logger: l.log}); err != nil {
			return fmt.Errorf("K_SINK: %w", err)
		}
		l.events.Receive(l.sink.Emit)
	}
	l.fleet, err = knative.New(l.cfg.Fleet, knative.Deps{Kube: l.kube, Serving: l.serving, Networking: l.networking, Activators: told{l.activators, l.events, l.source()}, Log: l.log})
	return err
}

// source is the source of the leader's events.
func (l *leader) source() string { return "/autoscaler/" + l.cfg.Pod }

// told are the activators, and the log of events: what the fleet says of an instance goes to both.
type told struct {
	*server.Activators
	events *tail.Log
	source string
}

// Tell passes r on. It does not block.
func (t told) Tell(r control.InstanceReport) {
	t.Activators.Tell(r)
	t.events.Emit(api.NewEvent(api.EventInstanceState, t.source, r.Status.Function, r.Status))
}

// serve runs the parts until ctx ends or one fails. Then all end, the core first of all to stop deciding.
func (l *leader) serve(ctx context.Context, listener net.Listener) error {
	handler, err := server.Handler(server.Config{Decider: l.core, Fleet: l.fleet, Activators: l.activators, Events: l.events,
		Token: l.token.current, Info: l.info, Log: l.log})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var parts sync.WaitGroup
	defer parts.Wait()
	run := func(name string, f func(context.Context) error) {
		parts.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	run("core", l.core.Run)
	run("fleet", l.fleet.Run)
	run("activators", l.activators.Run)
	run("token", l.token.keep)
	run("pods", func(ctx context.Context) error { return l.pods.run(ctx, l.keeper.Look) })
	run("controller", l.reconcile)
	run("take-over", l.keeper.Run)
	if l.sink != nil {
		run("event sink", l.sink.Run)
	}
	run("server", func(ctx context.Context) error { return serveHTTP(ctx, listener, handler, l.log) })
	l.log.Info("leading: instances and activators are served", "address", listener.Addr().String())
	<-ctx.Done()
	return context.Cause(ctx)
}

// reconcile reconciles PodAutoscalers until ctx ends.
func (l *leader) reconcile(ctx context.Context) error {
	configMaps := informer.NewInformedWatcher(l.kube, control.SystemNamespace)
	controller := knative.NewController(ctx, l.fleet, configMaps)
	if err := configMaps.Start(ctx.Done()); err != nil {
		return fmt.Errorf("watch Knative's ConfigMaps: %w", err)
	}
	return controller.RunContext(ctx, reconcilers)
}

// serveHTTP serves h until ctx ends; requests may finish for a moment then.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := closing.New(&http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: quiet(log),
		BaseContext: func(net.Listener) context.Context { return ctx }})
	served := make(chan error, 1) // sent to by the server, once
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if s.Shutdown(draining) != nil {
		_ = s.Close() // whoever follows a log is cut
	}
	<-served
	return nil
}

// quiet logs what net/http has to say of broken connections, for those who look closely.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// info is what the administrative API says about the cluster.
func (l *leader) info() server.Info {
	i := server.Info{Version: l.cfg.Version, URL: "http://" + control.FrontDoorName + "." + control.SystemNamespace + ".svc",
		Leader: l.cfg.Pod, Started: l.started, TakenOver: l.keeper.Taken(), Problem: l.keeper.Problem(), Activators: []server.ActivatorInfo{}}
	for _, a := range l.activators.Known() {
		i.Activators = append(i.Activators, server.ActivatorInfo{Name: a.Name, Ready: a.Ready})
	}
	return i
}
