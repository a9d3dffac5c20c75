package inject

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const (
	injectorName = "rouse-injector"
	webhookName  = "functions.rouse.dev"
	// providersName is the webhook for pods that the autoscaler creates.
	providersName   = "providers.rouse.dev"
	annotationImage = "rouse.dev/function-image"
	serviceHost     = injectorName + "." + control.SystemNamespace + ".svc"
)

// Config configures a replica.
type Config struct {
	// Pod is our own, whose init container "function" names the image.
	Pod string
	// FunctionImage overrides that image.
	FunctionImage string
	// Listen is for the API server, MetricsListen for /metrics, /healthz and /readyz.
	Listen, MetricsListen string
	Clients               kubernetes.Interface
	Serving               servingclient.Interface
	Log                   *slog.Logger
}

type server struct {
	cfg    Config
	image  image
	images *images
	own    atomic.Pointer[tls.Certificate] // nil: none yet
	ready  atomic.Bool
	asked  *prometheus.CounterVec
	reach  func(ctx context.Context, bundle []byte) error // for tests, in place of the request to the service
}

// patience is how long to wait for a revision's PodAutoscaler: less than the API server's ten seconds.
const patience = 5 * time.Second

const (
	lookSoon  = 2 * time.Second // while something is wrong
	lookAgain = time.Minute
)

// DescribeMetrics registers the injector's metrics with r without values, to list them.
func DescribeMetrics(r prometheus.Registerer) error { return r.Register(newAsked()) }

func newAsked() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_injector_pods_total", Help: "Pods that the API server has asked about, by what became of them."}, []string{"result"})
}

func newServer(cfg Config, from image, registry prometheus.Registerer) *server {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &server{cfg: cfg, image: from, images: newImages(cfg.Clients, &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, TLSHandshakeTimeout: readWithin}),
		asked: newAsked()}
	s.asked.WithLabelValues("refused") // present from the beginning: the first one is an increase
	registry.MustRegister(s.asked)
	return s
}

// Run serves until ctx ends, and returns nil then.
func Run(ctx context.Context, cfg Config) error {
	from := image{name: cfg.FunctionImage, policy: corev1.PullIfNotPresent}
	if from.name == "" {
		pod, err := cfg.Clients.CoreV1().Pods(control.SystemNamespace).Get(ctx, cfg.Pod, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the process's own pod: %w", err)
		}
		if from, err = functionImage(pod); err != nil {
			return err
		}
	}
	registry := prometheus.NewRegistry()
	s := newServer(cfg, from, registry)
	webhook := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}}
	health := &http.Server{Handler: s.health(registry), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ErrorLog: webhook.ErrorLog}
	secure, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	plain, err := net.Listen("tcp", cfg.MetricsListen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for /metrics and probes: %w", err), secure.Close())
	}
	secure, plain = inbound.Bound(webhook, secure, cfg.Log), inbound.Bound(health, plain, cfg.Log)
	ended := make(chan error, 2)
	go func() { ended <- webhook.ServeTLS(secure, "", "") }()
	go func() { ended <- health.Serve(plain) }()
	s.keep(ctx)
	s.ready.Store(false)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin+time.Second)
	defer cancel()
	err = errors.Join(webhook.Shutdown(last), health.Close())
	for range 2 {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (s *server) keep(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		next := lookAgain
		err := errors.Join(s.announce(ctx), s.authorize(ctx, time.Now()))
		s.ready.Store(s.own.Load() != nil)
		if err != nil && ctx.Err() == nil {
			next = lookSoon
			if err.Error() != said {
				s.cfg.Log.Warn("the webhook is not in order", "error", err)
			}
			said = err.Error()
		}
		if err == nil {
			said = ""
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
}

func (s *server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if own := s.own.Load(); own != nil {
		return own, nil
	}
	return nil, errors.New("there is no certificate yet")
}

func (s *server) health(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", answerOK)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "no certificate yet", http.StatusServiceUnavailable)
			return
		}
		answerOK(w, nil)
	})
	return mux
}

func answerOK(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) } // the prober may have left

// mostReview: a pod has at most 1.5 MiB.
const mostReview = 4 << 20

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answerOK)
	mux.HandleFunc("POST /pods", func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostReview)).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "want an AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		answer := s.review(r.Context(), review.Request)
		answer.UID = review.Request.UID
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer}) // the API server may have left
	})
	return mux
}

func (s *server) review(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var pod corev1.Pod
	if err := json.Unmarshal(r.Object.Raw, &pod); err != nil {
		return s.deny(fmt.Errorf("read the pod: %w", err))
	}
	if r.Kind.Kind != "Pod" || r.Operation != admissionv1.Create || r.SubResource != "" {
		return s.allow("other", nil)
	}
	change, result, err := s.change(ctx, &pod, r.Namespace)
	if err != nil {
		s.cfg.Log.Warn("a pod was refused", "namespace", r.Namespace, "pod", pod.Name+pod.GenerateName, "error", err)
		return s.deny(err)
	}
	return s.allow(result, change)
}

func (s *server) change(ctx context.Context, pod *corev1.Pod, namespace string) (change []operation, result string, err error) {
	revision := cmp.Or(pod.Labels[serving.RevisionLabelKey], pod.Labels[labelProvider])
	if revision == "" {
		return nil, "other", nil
	}
	r, err := s.cfg.Serving.ServingV1().Revisions(namespace).Get(ctx, revision, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "other", nil // it will be deleted with its revision
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the revision %s/%s: %w", namespace, revision, err)
	}
	ours, err := s.isFunction(ctx, r)
	if err != nil || !ours {
		return nil, "other", err
	}
	v, err := decide(ctx, pod, r.Annotations, s.images.of(pod, namespace))
	var out patch
	out.addProof(pod)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("the revision %s: %w", revision, err)
	case v.missing != "":
		out.mark(pod, config.AnnotationNotInjected, v.missing)
		return out.all, "unknown", nil
	case v.plan == nil:
		out.renew(pod, s.image)
		return out.all, "function", nil
	}
	change, err = mutate(pod, v.plan, s.image)
	return append(out.all, change...), "injected", err
}

// isFunction reports whether a revision is of our class. If it names none, it waits for its PodAutoscaler, which Knative
// creates later.
func (s *server) isFunction(ctx context.Context, r *servingv1.Revision) (ours bool, err error) {
	if r.Annotations[config.AnnotationClass] != "" {
		return config.IsFunction(r.Annotations, nil), nil
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		pa, err := s.cfg.Serving.AutoscalingV1alpha1().PodAutoscalers(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		ours = err == nil && config.IsFunction(r.Annotations, pa.Annotations)
		return true, err
	})
	if err != nil {
		return false, fmt.Errorf("read the PodAutoscaler %s/%s, which says the class of the revision: %w", r.Namespace, r.Name, err)
	}
	return ours, nil
}

func (s *server) allow(result string, change []operation) *admissionv1.AdmissionResponse {
	s.asked.WithLabelValues(result).Inc()
	answer := &admissionv1.AdmissionResponse{Allowed: true}
	if len(change) > 0 {
		raw, err := json.Marshal(change)
		if err != nil {
			return s.deny(fmt.Errorf("write the patch: %w", err))
		}
		answer.Patch, answer.PatchType = raw, new(admissionv1.PatchTypeJSONPatch)
	}
	return answer
}

func (s *server) deny(err error) *admissionv1.AdmissionResponse {
	s.asked.WithLabelValues("refused").Inc()
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Message: err.Error()}}
}
