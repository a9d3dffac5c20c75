package settings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/api/control"
)

// Config configures a [Reconciler].
type Config struct {
	Kube kubernetes.Interface
	// AllowUntested allows every version of Knative Serving.
	AllowUntested bool
	// Reached reports whether all functions' requests arrive without Knative's activator-service.
	Reached func() bool
	Log     *slog.Logger
}

const every = 30 * time.Second

// Reconciler maintains Knative's settings: see the package comment.
type Reconciler struct {
	cfg   Config
	taker taker

	mu      sync.Mutex // guards problem
	problem string
}

// NewReconciler returns a reconciler and starts nothing.
func NewReconciler(cfg Config) *Reconciler {
	return &Reconciler{cfg: cfg, taker: taker{cfg.Kube, control.SystemNamespace}}
}

// Problem returns what the operator has to do first.
func (r *Reconciler) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// Wait returns when the cluster has a Knative Serving that this program works with, or with ctx's cause. Meanwhile it
// logs what is missing.
func (r *Reconciler) Wait(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, every) {
		version, remark, err := Check(ctx, r.cfg.Kube, r.cfg.AllowUntested)
		r.trouble(ctx, err)
		if err == nil {
			r.cfg.Log.Info("Knative Serving is there", "version", version)
			if remark != "" {
				r.cfg.Log.Warn(remark)
			}
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run maintains the settings until ctx ends, and returns nil then. It does not undo them.
func (r *Reconciler) Run(ctx context.Context) error {
	for {
		err := r.reconcile(ctx)
		r.trouble(ctx, err)
		pause := every
		if err != nil {
			pause = min(pause, 5*time.Second)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// reconcile gives Knative's activator-service back once Knative's own activator is available.
func (r *Reconciler) reconcile(ctx context.Context) error {
	if _, _, err := Check(ctx, r.cfg.Kube, r.cfg.AllowUntested); err != nil {
		return err
	}
	set, err := r.taker.takeSettings(ctx)
	for _, s := range set {
		r.cfg.Log.Info("a setting of Knative's is changed; it was not set", "configmap", s.ConfigMap, "key", s.Key, "value", s.Value, "why", s.Why)
	}
	if err != nil || !r.cfg.Reached() {
		return err
	}
	activator, err := r.cfg.Kube.AppsV1().Deployments(control.SystemNamespace).Get(ctx, "activator", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Knative's activator: %w", err)
	}
	if activator.Status.AvailableReplicas == 0 {
		return nil
	}
	changed, err := r.taker.giveSelector(ctx)
	if changed && err == nil {
		r.say(ctx, corev1.EventTypeNormal, "GaveBack", fmt.Sprintf("Service %s points at Knative's own activator again; functions are reached without it", Service))
	}
	return err
}

func (r *Reconciler) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	reason, message := "SettingsFailed", ""
	var p *Problem
	switch {
	case errors.As(err, &p):
		reason, message = p.Reason, p.Message
	case err != nil:
		message = err.Error()
	}
	r.mu.Lock()
	old := r.problem
	r.problem = message
	r.mu.Unlock()
	if message != "" && message != old {
		r.say(ctx, corev1.EventTypeWarning, reason, message)
	}
}

// say also records an event on the autoscaler's Deployment.
func (r *Reconciler) say(ctx context.Context, kind, reason, message string) {
	if kind == corev1.EventTypeWarning {
		r.cfg.Log.Warn(message, "reason", reason)
	} else {
		r.cfg.Log.Info(message, "reason", reason)
	}
	if err := r.taker.event(ctx, kind, reason, message); err != nil {
		r.cfg.Log.Warn("an event could not be recorded", "error", err)
	}
}
