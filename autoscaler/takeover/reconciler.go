package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

// Config is what a [Reconciler] works with.
type Config struct {
	Kube kubernetes.Interface
	// AllowUntested takes over whatever version Knative Serving has.
	AllowUntested bool
	// ReadyActivators is the number of our activator's pods that are ready now. Call [Reconciler.Trigger] when it changes.
	ReadyActivators func() int
	// Patience is how long there may be none before the stock activator gets the requests again. Default 30 s.
	Patience time.Duration
	// Every is the time between passes where nothing changes. Default 30 s.
	Every time.Duration
	Log   *slog.Logger
}

// Reconciler keeps a cluster taken over: see the package comment.
type Reconciler struct {
	cfg      Config
	taker    taker
	triggers bell.Bell // rung by Trigger and the watch, heard by Run

	// missingSince is when the last of our activators was ready; it belongs to Run.
	missingSince time.Time

	mu      sync.Mutex // guards what follows
	taken   bool
	problem string
}

// NewReconciler makes a reconciler that does nothing yet.
func NewReconciler(cfg Config) *Reconciler {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	return &Reconciler{cfg: cfg, taker: taker{cfg.Kube, control.SystemNamespace}, triggers: bell.New()}
}

// Trigger asks Run for a pass soon. It does not block.
func (r *Reconciler) Trigger() { r.triggers.Ring() }

// Taken says whether the requests for stock Knative's activator come to ours.
func (r *Reconciler) Taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Problem says what people have to do before the cluster can be taken over; empty if nothing.
func (r *Reconciler) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// Wait returns when the cluster has a Knative Serving that this program works with, or
// with ctx's cause when ctx ends. Until then it says what is missing, in the log and as an event, once each.
func (r *Reconciler) Wait(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, r.cfg.Every) {
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

// Run keeps the cluster taken over until ctx ends, and returns nil then. What was taken stays
// taken: another leader goes on with it, or [GiveBack] ends it.
func (r *Reconciler) Run(ctx context.Context) error {
	factory := r.watch()
	factory.Start(ctx.Done())
	defer factory.Shutdown() // which waits for the watch; ctx has ended it
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.triggers:
		case <-ctx.Done():
			return nil
		}
		next := r.reconcile(ctx, time.Now())
		timer.Reset(next)
	}
}

// watch rings when the Service changes: whoever applies Knative's manifests again resets it.
func (r *Reconciler) watch() informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(r.cfg.Kube, 0, informers.WithNamespace(r.taker.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", Service).String()
		}))
	_, err := f.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.Trigger() }, UpdateFunc: func(any, any) { r.Trigger() }, DeleteFunc: func(any) { r.Trigger() },
	})
	if err != nil { // a new informer refuses no handler
		r.cfg.Log.Warn("changes of Knative's Service are seen late", "service", Service, "error", err)
	}
	return f
}

// reconcile does what is due and returns when to do so again.
//
//  1. One of our activators is ready: take over.
//  2. None is, and the cluster is taken: give the requests back once that has lasted.
//  3. People want nothing taken: give everything back.
func (r *Reconciler) reconcile(ctx context.Context, now time.Time) time.Duration {
	if _, _, err := Check(ctx, r.cfg.Kube, r.cfg.AllowUntested); err != nil {
		r.trouble(ctx, err)
		return r.cfg.Every
	}
	if r.cfg.ReadyActivators() > 0 { // 1
		r.missingSince = time.Time{}
		err := r.take(ctx)
		if errors.Is(err, errOff) { // 3
			if err = r.give(ctx); err == nil {
				r.trouble(ctx, errOff)
				return r.cfg.Every
			}
		}
		r.trouble(ctx, err)
		if err != nil {
			return min(r.cfg.Every, 5*time.Second)
		}
		return r.cfg.Every
	}
	if r.missingSince.IsZero() { // 2
		r.missingSince = now
	}
	if left := r.missingSince.Add(r.cfg.Patience).Sub(now); left > 0 {
		return left
	}
	r.trouble(ctx, r.lend(ctx))
	return r.cfg.Every
}

// take takes over what is not.
func (r *Reconciler) take(ctx context.Context) error {
	set, err := r.taker.takeSettings(ctx)
	for _, s := range set {
		r.cfg.Log.Info("a setting of Knative's is changed; it was not set", "configmap", s.ConfigMap, "key", s.Key, "value", s.Value, "why", s.Why)
	}
	if err != nil {
		return err
	}
	changed, err := r.taker.takeSelector(ctx)
	if err != nil {
		return err
	}
	r.setTaken(true)
	if changed {
		r.say(ctx, corev1.EventTypeNormal, "TookOver", fmt.Sprintf("Service %s points at %s; Knative's own activator keeps running, idle", Service, control.ActivatorName))
	}
	return nil
}

// give gives everything back.
func (r *Reconciler) give(ctx context.Context) error {
	done, err := r.taker.giveBack(ctx)
	for _, line := range done {
		r.say(ctx, corev1.EventTypeNormal, "GaveBack", line)
	}
	if err == nil {
		r.setTaken(false)
	}
	return err
}

// lend gives the requests back while none of our activators is ready.
func (r *Reconciler) lend(ctx context.Context) error {
	changed, err := r.taker.giveSelector(ctx)
	if err != nil {
		return err
	}
	r.setTaken(false)
	if changed {
		r.say(ctx, corev1.EventTypeWarning, "NoActivator", fmt.Sprintf("no pod of Deployment %s has been ready for %s: Service %s points at Knative's own activator until one is. Functions of Rouse can't be woken meanwhile; look at that Deployment's pods",
			control.ActivatorName, r.cfg.Patience, Service))
	}
	return nil
}

func (r *Reconciler) setTaken(taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = taken
}

// trouble notes what is wrong (nil: nothing is), and says it where it is new.
func (r *Reconciler) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	reason, message := "TakeOverFailed", ""
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

// say logs something and records it on the autoscaler's Deployment.
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
