package knative

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
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
	servingclient "knative.dev/serving/pkg/client/injection/client"
	revisioninformer "knative.dev/serving/pkg/client/injection/informers/serving/v1/revision"
	"knative.dev/serving/pkg/observability/otel"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/peertls"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// component is the name that Knative's configuration knows this process by.
const component = "activator"

// Connections to instances: idle ones for each, and for how long.
const (
	idlePerInstance = 256
	idleConnection  = 90 * time.Second
)

// errEnding is why the process is not ready, and the cause of its contexts' ends.
var errEnding = errors.New("the activator is shutting down")

// process is the activator of a cluster while it runs.
type process struct {
	cfg      Config
	log      *slog.Logger
	core     *activator.Activator
	events   *events
	prober   *prober
	traces   *waketrace.Exporter
	stock    *stock
	handler  http.Handler // of the ports that requests come to
	control  http.Handler
	peers    peertls.Identity
	metrics  http.Handler
	profiler *http.Server
	ending   chan struct{} // closed by Run when shutdown begins; nothing is sent
}

// Run is the activator of a cluster, which rest reaches. It blocks until ctx ends
// and the requests that it has accepted are answered, or [Config.Drain] is over;
// then it returns nil. The error says why it could not start or had to stop.
func Run(ctx context.Context, cfg Config, kube *rest.Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	// What runs goes on after ctx has ended, until requests are answered.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errEnding)
	injected, informers := injection.Default.SetupInformers(running, kube)
	injected, informers, token := bySecret(injected, informers)
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
	if p.stock, err = newStock(injected, cfg, deps); err != nil {
		return err
	}
	defer p.stock.close()
	if err := p.build(injected, deps, token); err != nil {
		return err
	}
	return p.serve(ctx, running, stop)
}

// waitForCluster waits, for a while, until the API server answers and is not too old.
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

// setUp makes what Knative's process needs besides its activator. shutdown sends what telemetry has.
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
		// Telemetry that does not arrive at the end is no failure of the activator.
		_ = meters.Shutdown(ctx)
		_ = traces.Shutdown(ctx)
		_ = deps.logger.Sync()
	}, nil
}

// logger logs as Knative's parts do: JSON lines on the standard error stream, as verbosely as config-logging says.
func logger(level zap.AtomicLevel) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slogLevel{level}}))
}

// slogLevel is a level of zap as one of slog.
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

// build makes our activator and puts it before Knative's. It returns once both know the cluster's state.
func (p *process) build(injected context.Context, deps stockDeps, secret cache.SharedIndexInformer) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	known, token := newInstances(), &clusterToken{}
	transport := localhttp.New(lanes, idleConnection)
	client := control.NewFor(transport, known.token)
	var err error
	if err = p.meetPeers(injected); err != nil {
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
	p.core, err = activator.New(activator.Config{Name: p.cfg.PodName, Bodies: inbound.Within(int64(p.cfg.MemoryLimit)), MaxEvent: p.cfg.MaxEvent, Domain: activator.NoDomain, PrivateMetrics: true},
		activator.Deps{Emitter: p.events, Peers: &p.cfg.Peers, Waker: client, Transport: localhttp.New(idlePerInstance, idleConnection), Logger: p.log, Registry: registry,
			Waits:  p.events.scaled.why,
			Traces: p.traces})
	if err != nil {
		return err
	}
	w := newWatch(p.core, known, p.log)
	p.prober = &prober{core: p.core, watch: w, instances: known, client: client, http: transport, log: p.log}
	revisions := revisioninformer.Get(injected)
	d := &dispatcher{
		core: p.core, front: p.core.Handler(), stock: p.stock.handler, lookup: revisionLookup(revisions.Lister()),
		tell: w.revision, domain: pkgnet.GetClusterDomainName(),
	}
	p.handler = &activatorhandler.HealthHandler{HealthCheck: p.ready, Logger: deps.logger,
		NextHandler: netprobe.NewHandler(&activatorhandler.ProbeHandler{NextHandler: d})}
	p.control = (&controls{core: p.core, instances: known, token: token, log: p.log}).handler()
	p.metrics = metricsHandler(registry)
	from := sources{revisions: revisions.Informer(), secret: secret, kube: kubeclient.Get(injected), serving: servingclient.Get(injected)}
	return from.feed(injected, w, token)
}

// metricsHandler serves our metrics; those of Knative's chain are at its own port. /healthz says that the process works.
func metricsHandler(registry *prometheus.Registry) http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return m
}

// ready says why the process is not ready, nil if it is. The state of the cluster
// is known before anything is served.
func (p *process) ready() error {
	select {
	case <-p.ending:
		return errEnding
	default:
		return p.stock.link.Status()
	}
}

// serve runs the parts and the servers until ctx ends, then drains.
func (p *process) serve(ctx, running context.Context, stop context.CancelCauseFunc) error {
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{p.core.Run, p.prober.run, p.traces.Run} {
		parts.Go(func() { _ = run(running) }) // they end with their context only
	}
	var sending sync.WaitGroup
	send, sent := context.WithCancel(context.WithoutCancel(running))
	sending.Go(func() { _ = p.events.run(send) })
	servers, failed := p.listen()
	p.log.Info("the activator serves", "pod", p.cfg.PodName)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(p.ending)
	if err == nil {
		p.drain(servers, failed)
	}
	servers.close()
	stop(errEnding)
	parts.Wait() // each function's last level is queued now
	sent()
	sending.Wait()
	return err
}

// drain waits until the senders of requests know that this pod takes none, then until requests have finished.
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
	all.Wait()
	p.log.Info("all requests have finished")
}

// servers are the process's, by name.
type servers struct {
	requests []*http.Server // end when requests have finished
	others   []*http.Server // serve until the very end: instances still wake, and are measured
}

// listen starts the servers. failed is sent to by each that can't go on; it has a place for each.
func (p *process) listen() (servers, <-chan error) {
	at := func(port int, h http.Handler) *http.Server { return newServer(":"+strconv.Itoa(port), h) }
	p.profiler.IdleTimeout = idleTimeout
	s := servers{
		requests: []*http.Server{at(portHTTP, p.handler), at(portH2C, p.handler)},
		others:   []*http.Server{at(control.ActivatorPort, inbound.Answered(api.InTurn(p.control))), at(control.MetricsPort, inbound.Answered(p.metrics)), p.profiler},
	}
	failed := make(chan error, 8)
	run := func(server *http.Server, listen func() error) {
		go func() {
			if err := listen(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", server.Addr, err)
			}
		}()
	}
	for _, server := range s.requests {
		run(server, func() error {
			return listenAndServe(server, func(l net.Listener) net.Listener { return inbound.Guard(server, l, api.WriteErrorTo) })
		})
	}
	for _, server := range s.others {
		run(server, func() error {
			return listenAndServe(server, func(l net.Listener) net.Listener {
				if server == s.others[0] {
					return p.peers.Listen(l)
				}
				return l
			})
		})
	}
	if p.stock.certs == nil {
		return s, failed
	}
	secure := at(portTLS, p.handler)
	cfg, err := tlsConfig(p.stock.certs)
	if err != nil {
		failed <- err
		return s, failed
	}
	run(secure, func() error { return listenAndServe(secure, overTLS(secure, cfg)) })
	s.requests = append(s.requests, secure)
	return s, failed
}

// finish takes no new connections and waits until all requests are answered, or ctx ends.
func (s servers) finish(ctx context.Context) {
	var all sync.WaitGroup
	for _, server := range s.requests {
		all.Go(func() { _ = server.Shutdown(ctx) }) // what is left is closed
	}
	all.Wait()
}

func (s servers) close() {
	for _, server := range append(s.requests, s.others...) {
		_ = server.Close()
	}
}
