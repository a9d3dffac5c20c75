package knative

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netcfg "knative.dev/networking/pkg/config"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	configmapinformer "knative.dev/pkg/configmap/informer"
	pkglogging "knative.dev/pkg/logging"
	pkgnet "knative.dev/pkg/network"
	k8sruntime "knative.dev/pkg/observability/runtime/k8s"
	"knative.dev/pkg/system"
	"knative.dev/pkg/websocket"
	stockactivator "knative.dev/serving/pkg/activator"
	"knative.dev/serving/pkg/activator/certificate"
	activatorconfig "knative.dev/serving/pkg/activator/config"
	activatorhandler "knative.dev/serving/pkg/activator/handler"
	activatornet "knative.dev/serving/pkg/activator/net"
	apiconfig "knative.dev/serving/pkg/apis/config"
	asmetrics "knative.dev/serving/pkg/autoscaler/metrics"
	pkghttp "knative.dev/serving/pkg/http"
	"knative.dev/serving/pkg/http/handler"
	"knative.dev/serving/pkg/logging"
	o11yconfigmap "knative.dev/serving/pkg/observability/configmap"
)

// stock is Knative's activator, assembled as in its own program, for other classes.
type stock struct {
	handler http.Handler
	// nil: Knative's system-internal-tls is off
	certs *certificate.CertCache

	link *websocket.ManagedConnection // to Knative's autoscaler
}

type stockDeps struct {
	logger *zap.SugaredLogger
	level  zap.AtomicLevel
	meters metric.MeterProvider
	traces trace.TracerProvider
	pprof  *k8sruntime.ProfilingServer
}

// newStock's parts end with ctx, which has running informers.
func newStock(ctx context.Context, cfg Config, deps stockDeps) (*stock, error) {
	s := &stock{}
	kube := kubeclient.Get(ctx)
	network, err := networkConfig(ctx)
	if err != nil {
		return nil, err
	}
	// A request can reuse the probe's connection.
	transport := pkgnet.NewProxyAutoTransport(cfg.Stock.MaxIdle, cfg.Stock.MaxIdlePerHost)
	if network.SystemInternalTLSEnabled() {
		if s.certs, err = certificate.NewCertCache(ctx); err != nil {
			return nil, fmt.Errorf("system-internal-tls is on: %w", err)
		}
		transport = pkgnet.NewProxyAutoTLSTransport(cfg.Stock.MaxIdle, cfg.Stock.MaxIdlePerHost, s.certs.TLSContext())
	}
	activatornet.SetProbeSettings(cfg.Stock.ProbeTimeout, cfg.Stock.ProbeEvery)
	throttler := activatornet.NewThrottler(ctx, cfg.PodIP)
	go throttler.Run(ctx, transport, network.EnableMeshPodAddressability, network.MeshCompatibilityMode)

	configs := configmapinformer.NewInformedWatcher(kube, system.Namespace())
	store := activatorconfig.NewStore(deps.logger)
	store.WatchConfigs(configs)

	autoscaler := "ws://" + pkgnet.GetServiceHostname("autoscaler", system.Namespace()) + ":8080"
	s.link = websocket.NewDurableSendingConnection(autoscaler, deps.logger, stockactivator.AutoscalerConnectionOptions(deps.logger, deps.meters)...)
	// Unbuffered, as the reporter expects, which never closes it.
	stats := make(chan []asmetrics.StatMessage)
	go stockactivator.ReportStats(deps.logger, s.link, stats)
	reporter := activatorhandler.NewConcurrencyReporter(ctx, cfg.PodName, stats, deps.meters)
	go reporter.Run(ctx.Done())

	h := activatorhandler.New(ctx, throttler, transport, network.EnableMeshPodAddressability, deps.logger, s.certs != nil, deps.traces, deps.meters)
	h = handler.NewTimeoutHandler(h, "activator request timeout", stockTimeouts, deps.logger)
	h = reporter.Handler(h)
	h = activatorhandler.NewTracingAttributeHandler(deps.traces, h)
	requestLog, err := pkghttp.NewRequestLogHandler(h, logging.NewSyncFileWriter(os.Stdout), "", requestLogInput, false)
	if err != nil {
		return nil, fmt.Errorf("make the request log: %w", err)
	}
	h = activatorhandler.NewMetricAttributeHandler(cfg.PodName, requestLog)
	h = activatorhandler.WrapActivatorHandlerWithFullDuplex(h, deps.logger)
	h = activatorhandler.NewContextHandler(ctx, h, store)
	s.handler = otelhttp.NewHandler(h, "handle", otelhttp.WithTracerProvider(deps.traces), otelhttp.WithMeterProvider(deps.meters))

	configs.Watch(pkglogging.ConfigMapName(), pkglogging.UpdateLevelFromConfigMap(deps.logger, deps.level, component))
	configs.Watch(o11yconfigmap.Name(), updateRequestLog(deps.logger, requestLog), deps.pprof.UpdateFromConfigMap)
	if err := configs.Start(ctx.Done()); err != nil {
		return nil, fmt.Errorf("watch the ConfigMaps of Knative: %w", err)
	}
	return s, nil
}

func networkConfig(ctx context.Context) (*netcfg.Config, error) {
	raw, err := kubeclient.Get(ctx).CoreV1().ConfigMaps(system.Namespace()).Get(ctx, netcfg.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the ConfigMap %s: %w", netcfg.ConfigMapName, err)
	}
	network, err := netcfg.NewConfigFromConfigMap(raw)
	if err != nil {
		return nil, fmt.Errorf("read the ConfigMap %s: %w", netcfg.ConfigMapName, err)
	}
	return network, nil
}

// In all, to the first byte, and of a pause.
func stockTimeouts(r *http.Request) (all, first, idle time.Duration) {
	all = apiconfig.DefaultRevisionTimeoutSeconds * time.Second
	rev := activatorhandler.RevisionFrom(r.Context())
	if rev == nil {
		return all, apiconfig.DefaultRevisionResponseStartTimeoutSeconds * time.Second, apiconfig.DefaultRevisionIdleTimeoutSeconds * time.Second
	}
	if s := rev.Spec.TimeoutSeconds; s != nil {
		all = time.Duration(*s) * time.Second
	}
	if s := rev.Spec.ResponseStartTimeoutSeconds; s != nil {
		first = time.Duration(*s) * time.Second
	}
	if s := rev.Spec.IdleTimeoutSeconds; s != nil {
		idle = time.Duration(*s) * time.Second
	}
	return all, first, idle
}

func (s *stock) close() { _ = s.link.Shutdown() }
