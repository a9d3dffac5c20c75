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
)

// Config is what a [Keeper] works with.
type Config struct {
	Kube kubernetes.Interface
	// AllowUntested takes over whatever version Knative Serving has.
	AllowUntested bool
	// ReadyActivators is the number of our activator's pods that are ready now. Call [Keeper.Look] when it changes.
	ReadyActivators func() int
	// Patience is how long there may be none before the stock activator gets the requests again. Default 30 s.
	Patience time.Duration
	// Every is how often all is looked at where nothing seems to happen. Default 30 s.
	Every time.Duration
	Log   *slog.Logger
}

// Keeper keeps a cluster taken over. See the package comment.
type Keeper struct {
	cfg   Config
	taker taker
	bell  chan struct{} // one place: a second ring says nothing new. Rung by Look and the watch, heard by Run

	// missingSince is when the last of our activators was ready; it belongs to Run.
	missingSince time.Time

	mu      sync.Mutex // guards what follows
	taken   bool
	problem string
}

// NewKeeper makes a keeper that does nothing yet.
func NewKeeper(cfg Config) *Keeper {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	return &Keeper{cfg: cfg, taker: taker{cfg.Kube, control.SystemNamespace}, bell: make(chan struct{}, 1)}
}

// Look has the keeper look soon. It does not block.
func (k *Keeper) Look() {
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// Taken says whether the requests for stock Knative's activator come to ours.
func (k *Keeper) Taken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.taken
}

// Problem says what people have to do before the cluster can be taken over; empty if nothing.
func (k *Keeper) Problem() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problem
}

// Wait returns when the cluster has a Knative Serving that this program works with, or
// with ctx's cause when ctx ends. Until then it says what is missing, in the log and as an event, once each.
func (k *Keeper) Wait(ctx context.Context) error {
	for pause := time.Second; ; pause = min(2*pause, k.cfg.Every) {
		version, remark, err := Check(ctx, k.cfg.Kube, k.cfg.AllowUntested)
		k.trouble(ctx, err)
		if err == nil {
			k.cfg.Log.Info("Knative Serving is there", "version", version)
			if remark != "" {
				k.cfg.Log.Warn(remark)
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
func (k *Keeper) Run(ctx context.Context) error {
	factory := k.watch()
	factory.Start(ctx.Done())
	defer factory.Shutdown() // which waits for the watch; ctx has ended it
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.bell:
		case <-ctx.Done():
			return nil
		}
		next := k.look(ctx, time.Now())
		timer.Reset(next)
	}
}

// watch rings when the Service changes: whoever applies Knative's manifests again resets it.
func (k *Keeper) watch() informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(k.cfg.Kube, 0, informers.WithNamespace(k.taker.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", Service).String()
		}))
	_, err := f.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.Look() }, UpdateFunc: func(any, any) { k.Look() }, DeleteFunc: func(any) { k.Look() },
	})
	if err != nil { // a new informer refuses no handler
		k.cfg.Log.Warn("changes of Knative's Service are seen late", "service", Service, "error", err)
	}
	return f
}

// look does what is due and says when to look again.
//
//  1. One of our activators is ready: take over.
//  2. None is, and the cluster is taken: give the requests back once that has lasted.
//  3. People want nothing taken: give everything back.
func (k *Keeper) look(ctx context.Context, now time.Time) time.Duration {
	if _, _, err := Check(ctx, k.cfg.Kube, k.cfg.AllowUntested); err != nil {
		k.trouble(ctx, err)
		return k.cfg.Every
	}
	if k.cfg.ReadyActivators() > 0 { // 1
		k.missingSince = time.Time{}
		err := k.take(ctx)
		if errors.Is(err, errOff) { // 3
			if err = k.give(ctx); err == nil {
				k.trouble(ctx, errOff)
				return k.cfg.Every
			}
		}
		k.trouble(ctx, err)
		if err != nil {
			return min(k.cfg.Every, 5*time.Second)
		}
		return k.cfg.Every
	}
	if k.missingSince.IsZero() { // 2
		k.missingSince = now
	}
	if left := k.missingSince.Add(k.cfg.Patience).Sub(now); left > 0 {
		return left
	}
	k.trouble(ctx, k.lend(ctx))
	return k.cfg.Every
}

// take takes over what is not.
func (k *Keeper) take(ctx context.Context) error {
	set, err := k.taker.takeSettings(ctx)
	for _, s := range set {
		k.cfg.Log.Info("a setting of Knative's is changed; it was not set", "configmap", s.ConfigMap, "key", s.Key, "value", s.Value, "why", s.Why)
	}
	if err != nil {
		return err
	}
	changed, err := k.taker.takeSelector(ctx)
	if err != nil {
		return err
	}
	k.setTaken(true)
	if changed {
		k.say(ctx, corev1.EventTypeNormal, "TookOver", fmt.Sprintf("Service %s points at %s; Knative's own activator keeps running, idle", Service, control.ActivatorName))
	}
	return nil
}

// give gives everything back.
func (k *Keeper) give(ctx context.Context) error {
	done, err := k.taker.giveBack(ctx)
	for _, line := range done {
		k.say(ctx, corev1.EventTypeNormal, "GaveBack", line)
	}
	if err == nil {
		k.setTaken(false)
	}
	return err
}

// lend gives the requests back while none of our activators is ready.
func (k *Keeper) lend(ctx context.Context) error {
	changed, err := k.taker.giveSelector(ctx)
	if err != nil {
		return err
	}
	k.setTaken(false)
	if changed {
		k.say(ctx, corev1.EventTypeWarning, "NoActivator", fmt.Sprintf("no pod of Deployment %s has been ready for %s: Service %s points at Knative's own activator until one is. Functions of Rouse can't be woken meanwhile; look at that Deployment's pods",
			control.ActivatorName, k.cfg.Patience, Service))
	}
	return nil
}

func (k *Keeper) setTaken(taken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken = taken
}

// trouble notes what is wrong (nil: nothing is), and says it where it is new.
func (k *Keeper) trouble(ctx context.Context, err error) {
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
	k.mu.Lock()
	old := k.problem
	k.problem = message
	k.mu.Unlock()
	if message != "" && message != old {
		k.say(ctx, corev1.EventTypeWarning, reason, message)
	}
}

// say logs something and records it on the autoscaler's Deployment.
func (k *Keeper) say(ctx context.Context, kind, reason, message string) {
	if kind == corev1.EventTypeWarning {
		k.cfg.Log.Warn(message, "reason", reason)
	} else {
		k.cfg.Log.Info(message, "reason", reason)
	}
	if err := k.taker.event(ctx, kind, reason, message); err != nil {
		k.cfg.Log.Warn("an event could not be recorded", "error", err)
	}
}
