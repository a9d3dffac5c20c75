package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"knative.dev/pkg/configmap/informer"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/knative"
	"github.com/rouse-dev/rouse/autoscaler/server"
	"github.com/rouse-dev/rouse/autoscaler/settings"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

const reconcilers = 8

type leader struct {
	*process
	term       uint64
	gate       *gate
	reconciler *settings.Reconciler
	token      *token
	peers      *peers
	activators *server.Activators
	pods       *activatorPods
	events     *cloudevent.Log
	sink       *cloudevent.Sender // may be nil
	fleet      *knative.Fleet
	core       *autoscaler.Autoscaler
	learned    *learned
	started    time.Time
}

func (p *process) lead(ctx context.Context, term uint64) error {
	l := &leader{process: p, term: term, started: time.Now()}
	if err := l.build(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for instances and activators: %w", err)
	}
	running, stop := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop(nil)
	run := func(name string, f func(context.Context) error) {
		parts.Go(func() {
			if err := f(running); err != nil && running.Err() == nil {
				stop(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	run("server", func(ctx context.Context) error {
		return serveHTTP(ctx, l.peers.identity.Listen(listener), l.gate, l.log)
	})
	run("label", l.claim)
	if err := l.prepare(running); err != nil && running.Err() == nil {
		return err
	} else if err == nil {
		l.run(run)
		l.log.Info("leading: instances and activators are served", "address", listener.Addr().String())
		<-running.Done()
		parts.Wait()
		if !errors.Is(context.Cause(running), errLost) { // else the next leader writes it
			l.learned.leave(ctx, l.core)
		}
	}
	return ended(ctx, context.Cause(running))
}

func (l *leader) prepare(ctx context.Context) (err error) {
	if err := l.reconciler.Wait(ctx); err != nil {
		return err
	}
	if err := l.belong(ctx); err != nil {
		return err
	}
	if err := l.token.ensure(ctx); err != nil {
		return err
	}
	if err := l.peers.reload(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("internal TLS", "error", err) // retried when the missing object exists
	}
	if err := l.fleet.Sync(ctx); err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	policy := l.cfg.Policy
	policy.Advice = knative.Advice()
	l.learned = readLearned(ctx, l.kube, l.log)
	record := l.cfg.Record
	record.Version = l.cfg.Version
	l.core, err = autoscaler.New(autoscaler.Config{Term: l.term, Devices: l.fleet.Devices(), Source: l.source(), Policy: policy, Memory: l.learned, Usage: l.learned.usage, Hold: l.activators.Hold,
		Traces: l.cfg.Traces, Record: record}, l.fleet, l.events, l.log, l.registry)
	if err != nil {
		return err
	}
	l.fleet.Attach(l.core)
	handler, err := server.Handler(server.Config{Decider: l.core, Fleet: l.fleet, Activators: l.activators, Events: l.events,
		Token: l.token.current, Info: l.info, Log: l.log})
	if err != nil {
		return err
	}
	l.gate.open(handler)
	return nil
}

// belong makes the autoscaler's Deployment own the lease and the token's Secret.
func (l *leader) belong(ctx context.Context) error {
	d, err := l.kube.AppsV1().Deployments(control.SystemNamespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the autoscaler's Deployment: %w", err)
	}
	l.token.owner = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID}}
	leases := l.kube.CoordinationV1().Leases(control.SystemNamespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the elector renews it meanwhile
		lease, err := leases.Get(ctx, control.AutoscalerName, metav1.GetOptions{})
		if err == nil && !slices.Equal(lease.OwnerReferences, l.token.owner) {
			lease.OwnerReferences = l.token.owner
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		return err
	})
}

func (l *leader) run(run func(name string, f func(context.Context) error)) {
	run("core", l.core.Run)
	run("traces", l.cfg.Traces.Run)
	run("fleet", l.fleet.Run)
	run("activators", l.activators.Run)
	run("usage", l.watchUsage)
	run("learned", func(ctx context.Context) error { return l.learned.keep(ctx, l.core) })
	run("token", l.token.keep)
	run("internal TLS", l.peers.keep)
	run("pods", l.pods.run)
	run("controller", l.reconcile)
	run("settings", l.reconciler.Run)
	if l.sink != nil {
		run("event sink", l.sink.Run)
	}
}

// ended hides an error that follows from the end of ctx, but not the loss of the lease.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLost) {
		return nil
	}
	return err
}

// build needs nothing of the cluster and starts nothing.
func (l *leader) build() (err error) {
	l.token = newToken(l.kube, l.log)
	l.peers = newPeers(l.kube, l.log)
	l.activators = server.NewActivators(l.peers.identity.Transport(server.NewTransport()), l.token.current, l.log)
	l.pods = newActivatorPods(l.kube, l.activators.Set)
	l.reconciler = settings.NewReconciler(settings.Config{Kube: l.kube, AllowUntested: l.cfg.AllowUntested,
		Reached: func() bool { return l.fleet.Reached() }, Log: l.log})
	l.gate = newGate(l.reconciler.Problem)
	l.events = cloudevent.NewLog()
	if l.cfg.Sink != "" {
		overrides, err := cloudevent.ParseOverrides(l.cfg.SinkOverrides)
		if err != nil {
			return err
		}
		if l.sink, err = cloudevent.NewSender(cloudevent.SenderConfig{URL: l.cfg.Sink, Overrides: overrides, Keep: true, Logger: l.log}); err != nil {
			return fmt.Errorf("K_SINK: %w", err)
		}
		l.events.Receive(l.sink.Emit)
	}
	fleet := l.cfg.Fleet
	fleet.Term = l.term
	l.fleet, err = knative.New(fleet, knative.Deps{Kube: l.kube, Serving: l.serving, Networking: l.networking, Activators: told{l.activators, l.events, l.source()}, Registry: l.registry, Log: l.log})
	return err
}

func (l *leader) source() string { return "/autoscaler/" + l.cfg.Pod }

type told struct {
	*server.Activators
	events *cloudevent.Log
	source string
}

// Tell does not block.
func (t told) Tell(r control.InstanceReport) {
	t.Activators.Tell(r)
	t.events.Emit(api.NewEvent(api.EventInstanceState, t.source, r.Status.Function, r.Status))
}

func (l *leader) reconcile(ctx context.Context) error {
	configMaps := informer.NewInformedWatcher(l.kube, control.SystemNamespace)
	controller := knative.NewController(ctx, l.fleet, configMaps)
	if err := configMaps.Start(ctx.Done()); err != nil {
		return fmt.Errorf("watch Knative's ConfigMaps: %w", err)
	}
	return controller.RunContext(ctx, reconcilers)
}

func (l *leader) info() server.Info {
	i := server.Info{Version: l.cfg.Version, URL: "http://" + control.FrontDoorName + "." + control.SystemNamespace + ".svc",
		Leader: l.cfg.Pod, Started: l.started, Problem: l.reconciler.Problem(), Activators: []server.ActivatorInfo{}}
	for _, a := range l.activators.Known() {
		i.Activators = append(i.Activators, server.ActivatorInfo{Name: a.Name, Ready: a.Ready})
	}
	return i
}
