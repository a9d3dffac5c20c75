// Package leader is the autoscaler as a process of a cluster. A process that has lost the lease ends with an error, and
// Kubernetes restarts it.
//
//  1. [Run] serves /healthz, /readyz and /metrics, and takes part in the election.
//  2. The leader listens, and its pod gets the label that the Service selects. Requests wait at a gate.
//  3. It waits for a Knative Serving that it works with (package settings), and ensures the cluster's token.
//  4. The fleet (package knative) reads what exists; only then the core starts and the gate opens.
//  5. When ctx ends, the leader stops deciding, leaves every instance as it is, and then releases the lease.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	networkingclient "knative.dev/networking/pkg/client/clientset/versioned"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/knative"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Config configures a process.
type Config struct {
	// Pod is our own, the identity in the election.
	Pod string
	// Listen is the leader's address. Default ":8080".
	Listen string
	// MetricsListen is for /metrics, /healthz and /readyz of every process. Default ":9091".
	MetricsListen string
	Kube          *rest.Config
	// AllowUntested allows every version of Knative Serving.
	AllowUntested bool
	// Sink gets a copy of every event (Knative's K_SINK).
	Sink string
	// SinkOverrides is the JSON of K_CE_OVERRIDES.
	SinkOverrides string
	// Policy's advice is filled in.
	Policy decide.Policy
	Fleet  knative.Config
	// DCGM are URLs of exporters of GPUs' use; a name with several addresses is polled at each.
	DCGM []string
	// Traces exports the traces of wakes; may be nil.
	Traces *waketrace.Exporter
	// Record's Version is filled in.
	Record  flight.Config
	Version string
	// Log may be nil.
	Log *slog.Logger
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	errs := []error{c.Record.Validate()}
	if c.Pod == "" {
		errs = append(errs, errors.New("the process's own pod is not known: set POD_NAME, or --pod, to its name"))
	}
	for _, l := range []struct{ flag, value string }{{"--listen", c.Listen}, {"--metrics-listen", c.MetricsListen}} {
		if address, _ := api.ListenAddress(l.value); l.value != "" && address != l.value {
			errs = append(errs, fmt.Errorf("%s %q: want host:port or :port, such as :8080", l.flag, l.value))
		}
	}
	errs = append(errs, inventory.DCGM{URLs: c.DCGM}.Validate())
	if c.Kube == nil {
		errs = append(errs, errors.New("the API server is not known: run in a pod, or name a file with --kubeconfig"))
	}
	errs = append(errs, c.Policy.Validate())
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, fmt.Sprintf(":%d", control.AutoscalerPort))
	c.MetricsListen = cmp.Or(c.MetricsListen, fmt.Sprintf(":%d", control.MetricsPort))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// No wake should wait for the client's own limit.
const (
	clientQPS   = 200
	clientBurst = 400
)

type process struct {
	cfg        Config
	log        *slog.Logger
	kube       kubernetes.Interface
	serving    servingclient.Interface
	networking networkingclient.Interface
	registry   *prometheus.Registry
	leading    atomic.Bool
	electing   atomic.Bool
}

// Run takes part in the election and leads when elected. It blocks until ctx ends, and returns nil then. An error says
// that it could not start, lost the lease, or that a part failed.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	p := &process{cfg: cfg, log: cfg.Log, registry: prometheus.NewRegistry()}
	if err := p.connect(); err != nil {
		return err
	}
	p.measure()
	health, err := net.Listen("tcp", cfg.MetricsListen)
	if err != nil {
		return fmt.Errorf("listen for /metrics and probes: %w", err)
	}
	server := &http.Server{Handler: inbound.Answered(p.health()), ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, ErrorLog: quiet(p.log)}
	health = inbound.Bound(server, health, p.log)
	served := make(chan error, 1) // sent to by the server, once
	go func() { served <- server.Serve(health) }()
	err = p.elect(ctx)
	_ = server.Close()
	if e := <-served; err == nil && !errors.Is(e, http.ErrServerClosed) {
		err = fmt.Errorf("serve /metrics and probes: %w", e)
	}
	return err
}

func (p *process) connect() error {
	c := rest.CopyConfig(p.cfg.Kube)
	c.QPS, c.Burst = clientQPS, clientBurst
	c.UserAgent = control.AutoscalerName + "/" + p.cfg.Version
	c.WarningHandler = rest.NoWarnings{} // Knative's ingresses read Endpoints, which Kubernetes warns of
	var errs [3]error
	p.kube, errs[0] = kubernetes.NewForConfig(c)
	p.serving, errs[1] = servingclient.NewForConfig(c)
	p.networking, errs[2] = networkingclient.NewForConfig(c)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("make clients of the API server: %w", err)
	}
	return nil
}

func (p *process) measure() {
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newLeading(&p.leading))
}

// DescribeMetrics registers a process's metrics with r, without those of its parts, to list them.
func DescribeMetrics(r prometheus.Registerer) error { return r.Register(newLeading(&atomic.Bool{})) }

func newLeading(leading *atomic.Bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rouse_autoscaler_leader", Help: "1 in the process that decides, else 0."}, func() float64 {
		if leading.Load() {
			return 1
		}
		return 0
	})
}

func (p *process) health() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) } // the prober may have left
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !p.electing.Load() {
			http.Error(w, "not yet standing for election", http.StatusServiceUnavailable)
			return
		}
		ok(w, r)
	})
	return mux
}
