package knative

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	netprobe "knative.dev/networking/pkg/http/probe"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/injection/sharedmain"
	pkglogging "knative.dev/pkg/logging"
	"knative.dev/pkg/logging/logkey"
	pkgnet "knative.dev/pkg/network"
	k8sruntime "knative.dev/pkg/observability/runtime/k8s"
	"knative.dev/pkg/version"
	activatorhandler "knative.dev/serving/pkg/activator/handler"
	servingv1 "knative.dev/serving/pkg/client/clientset/versioned/typed/serving/v1"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions/serving/v1"
	servingclient "knative.dev/serving/pkg/client/injection/client"
	revisioninformer "knative.dev/serving/pkg/client/injection/informers/serving/v1/revision"
	"knative.dev/serving/pkg/observability/otel"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/jsonlog"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/peertls"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

const component = "activator"

// To each instance.
const (
	idlePerInstance = 256
	idleConnection  = 90 * time.Second
)

// errEnding is also the cause of contexts' ends.
var errEnding = errors.New("the activator is shutting down")

type process struct {
	cfg      Config
	log      *slog.Logger
	core     *activator.Activator
	events   *events
	prober   *prober
	traces   *waketrace.Exporter
	stock    *stock       // nil: it is an agent
	agent    *agent.Agent // nil: it is none
	far      *elsewhere   // nil: no clusters elsewhere
	share    *share.Share
	store    *store.Store // nil: none, and no batches
	batches  *jobs.Server
	gateways *gateways // nil: no endpoint picker
	handler  http.Handler
	control  http.Handler
	peers    peertls.Identity
	metrics  http.Handler
	profiler *http.Server
	ending   chan struct{} // closed when shutdown begins
}

// Run blocks until ctx ends and requests are answered, or [Config.Drain] is over, and then returns nil.
func Run(ctx context.Context, cfg Config, kube *rest.Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	// Until requests are answered.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errEnding)
	injected, informers := injection.Default.SetupInformers(running, kube)
	injected, informers, ours := bySecret(injected, informers, cfg.RequireKeys)
	if cfg.Join != nil { // it needs no others
		informers = []controller.Informer{revisioninformer.Get(injected).Informer(), ours.certificate, ours.token}
	}
	if err := waitForCluster(ctx, injected); err != nil {
		return err
	}
	deps, shutdown, err := setUp(injected, cfg)
	if err != nil {
		return err
	}
	defer shutdown()
	injected = pkglogging.WithLogger(injected, deps.logger)
	p := &process{cfg: cfg, log: logger(deps.level), profiler: deps.pprof.Server, ending: make(chan struct{})}
	if err := controller.StartInformers(running.Done(), informers...); err != nil {
		return fmt.Errorf("read the cluster's state: %w: are the permissions of the manifest there?", err)
	}
	if cfg.Join == nil {
		if p.stock, err = newStock(injected, cfg, deps); err != nil {
			return err
		}
		defer p.stock.close()
	}
	if err := p.openStore(); err != nil {
		return err
	}
	defer p.closeStore()
	if err := p.build(injected, deps, ours); err != nil {
		return err
	}
	return p.serve(ctx, running, stop)
}

// It waits up to a minute.
func waitForCluster(ctx, injected context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(context.Context) (bool, error) {
		last = version.CheckMinimumVersion(kubeclient.Get(injected).Discovery())
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", errors.Join(last, err))
	}
	return nil
}

// shutdown flushes the telemetry.
func setUp(injected context.Context, cfg Config) (deps stockDeps, shutdown func(), err error) {
	logging, err := sharedmain.GetLoggingConfig(injected)
	if err != nil {
		return deps, nil, fmt.Errorf("read the ConfigMap %s: %w", pkglogging.ConfigMapName(), err)
	}
	deps.logger, deps.level = pkglogging.NewLoggerFromConfig(logging, component)
	deps.logger = deps.logger.With(zap.String(logkey.ControllerType, component), zap.String(logkey.Pod, cfg.PodName))
	deps.pprof = k8sruntime.NewProfilingServer(deps.logger.Named("pprof"))
	meters, traces := otel.SetupObservabilityOrDie(injected, component, deps.logger, deps.pprof)
	deps.meters, deps.traces = meters, traces
	return deps, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// Lost telemetry is no failure.
		_ = meters.Shutdown(ctx)
		_ = traces.Shutdown(ctx)
		_ = deps.logger.Sync()
	}, nil
}

// As Knative's components, at the level of config-logging.
func logger(level zap.AtomicLevel) *slog.Logger {
	return jsonlog.New(os.Stderr, slogLevel{level})
}

type slogLevel struct{ zap.AtomicLevel }

// Level implements [slog.Leveler].
func (l slogLevel) Level() slog.Level {
	switch level := l.AtomicLevel.Level(); {
	case level <= zapcore.DebugLevel:
		return slog.LevelDebug
	case level == zapcore.InfoLevel:
		return slog.LevelInfo
	case level == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// build returns once both activators know the cluster's state.
func (p *process) build(injected context.Context, deps stockDeps, ours secrets) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	known, token := newInstances(), &clusterToken{}
	transport := localhttp.New(lanes, idleConnection)
	client := control.NewFor(transport, known.token)
	var err error
	if err = p.meetPeers(injected); err != nil {
		return err
	}
	p.share = p.newShare(token)
	declared, err := followKeys(injected, ours.keys, p.share, p.log)
	if err != nil {
		return err
	}
	if p.events, err = newEvents(p.cfg, withToken{p.peers.Transport(control.NewTransport(lanes)), token}, p.log); err != nil {
		return err
	}
	if p.cfg.Env != nil {
		if p.traces, err = waketrace.FromEnvironment(p.cfg.Env, "", p.log); err != nil {
			p.log.Warn("no traces are exported", "error", err)
		}
	}
	if err := p.newCore(declared, client, registry); err != nil {
		return err
	}
	p.share.Tell(declared, p.core)
	if err := p.newBatches(registry); err != nil {
		return err
	}
	w := newWatch(p.core, known, p.log)
	if err := p.meetClusters(w, servingclient.Get(injected).ServingV1()); err != nil {
		return err
	}
	p.prober = &prober{core: p.core, watch: w, instances: known, client: client, http: transport, log: p.log}
	revisions := revisioninformer.Get(injected)
	if p.stock != nil {
		p.handler = p.beforeKnative(w, revisions, deps)
	}
	if err := p.meetGateways(); err != nil {
		return err
	}
	p.control = (&controls{core: p.core, share: p.share, instances: known, offers: w.offers, observe: w.observe, failed: p.failed, clusters: p.clusters, far: p.farFunctions, token: token}).handler()
	p.metrics = metricsHandler(registry, p.ready)
	from := sources{revisions: revisions.Informer(), secret: ours.token, kube: kubeclient.Get(injected), serving: servingclient.Get(injected)}
	if err := from.feed(injected, w, token); err != nil {
		return err
	}
	if p.stock == nil { // counted at their front door
		return nil
	}
	return meetOthers(injected, from.kube, p.cfg.PodName, p.share)
}

// With clusters elsewhere, events and requests pass through their front door.
func (p *process) newCore(declared *keys.Store, client *control.Client, registry *prometheus.Registry) (err error) {
	var emitter api.Emitter = p.events
	var sight activator.Sight // nil: all may see all
	instances := http.RoundTripper(localhttp.New(idlePerInstance, idleConnection))
	if p.cfg.Front != nil {
		if p.far, err = p.newElsewhere(emitter, instances, registry); err != nil {
			return err
		}
		emitter, instances, sight = p.far, p.far, p.far
	}
	p.core, err = activator.New(activator.Config{Name: p.cfg.PodName, Bodies: inbound.Within(int64(p.cfg.MemoryLimit)), Domain: activator.NoDomain, PrivateMetrics: true, Stored: p.howStored(), Version: p.cfg.Version},
		activator.Deps{Emitter: emitter, Sight: sight, Keys: declared, Others: p.share, Access: p.cfg.Access, Peers: &p.cfg.Peers, Waker: client, Transport: instances, Logger: p.log, Registry: registry,
			Waits:  p.events.scaled.why,
			Traces: p.traces})
	return err
}

// beforeKnative answers probes like Knative's activator.
func (p *process) beforeKnative(w *watch, revisions servinginformers.RevisionInformer, deps stockDeps) http.Handler {
	d := &dispatcher{
		core: p.core, front: p.front(), stock: p.stock.handler, isOurs: w.isOurs, lookup: revisionLookup(revisions.Lister()),
		tell: w.revision, named: w.services.elsewhere, domain: pkgnet.GetClusterDomainName(),
	}
	return &activatorhandler.HealthHandler{HealthCheck: p.ready, Logger: deps.logger,
		NextHandler: netprobe.NewHandler(&activatorhandler.ProbeHandler{NextHandler: d})}
}

func (p *process) meetClusters(w *watch, services servingv1.ServicesGetter) (err error) {
	if p.cfg.Join != nil {
		w.offers = newOffers(p.core, p.events, p.cfg.PodName)
		if w.placed, err = p.join(w.offers, services); err != nil {
			return err
		}
	}
	if p.far != nil {
		w.services, w.seen = newServices(p.far, p.log), p.far.ObserveNear
		return p.far.meet(p)
	}
	return nil
}

// Unlike Knative's activator it does not need Knative's autoscaler.
func (p *process) ready() error {
	select {
	case <-p.ending:
		return errEnding
	default:
	}
	if p.agent != nil && !p.agent.Serving() {
		return errNoFront
	}
	return nil
}

func (p *process) serve(ctx, running context.Context, stop context.CancelCauseFunc) error {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{p.core.Run, p.prober.run, p.share.Run, p.traces.Run} {
		parts.Go(func() { _ = run(running) }) // they end only with their context
	}
	parts.Go(func() { p.runBatches(ctx) })
	var joined sync.WaitGroup
	joining, leave := context.WithCancel(ctx)
	defer leave()
	if p.agent != nil {
		joined.Go(func() { _ = p.agent.Run(joining, p.cfg.Drain) }) // ends when its requests have
	}
	servers, failed := p.listen()
	if p.gateways != nil {
		parts.Go(func() {
			if err := p.gateways.run(running); err != nil {
				failed <- err
			}
		})
	}
	if p.far != nil {
		parts.Go(func() {
			if err := p.far.run(running, joining, p.cfg.Drain); err != nil {
				failed <- err
			}
		})
	}
	var sending sync.WaitGroup
	send, sent := context.WithCancel(context.WithoutCancel(running))
	sending.Go(func() { _ = p.events.run(send) })
	p.log.Info("the activator serves", "pod", p.cfg.PodName)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(p.ending)
	if p.far != nil {
		p.far.GoAway()
	}
	if p.agent == nil && err == nil {
		p.drain(servers, failed)
	}
	leave()
	joined.Wait()
	servers.close()
	stop(errEnding)
	parts.Wait() // each function's last demand is queued now
	sent()
	sending.Wait()
	return err
}

// drain first waits until senders know of the shutdown.
func (p *process) drain(s servers, failed <-chan error) {
	p.log.Info("shutting down: new requests are accepted until their senders know", "for", p.cfg.Propagation.String())
	select {
	case <-time.After(p.cfg.Propagation):
	case err := <-failed:
		p.log.Error("a server failed during shutdown", "error", err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), p.cfg.Drain, fmt.Errorf("not within %s", p.cfg.Drain))
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.core.Drain(ctx); err != nil {
			p.log.Warn("some requests did not finish", "error", err)
		}
	})
	all.Go(func() { s.finish(ctx) })
	if p.gateways != nil {
		p.gateways.stop()
	}
	all.Wait()
	p.log.Info("all requests have finished")
}
