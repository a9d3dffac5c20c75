package knative

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/controller"
	pkgreconciler "knative.dev/pkg/reconciler"
	knativescaling "knative.dev/serving/pkg/apis/autoscaling"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	pareconciler "knative.dev/serving/pkg/client/injection/reconciler/autoscaling/v1alpha1/podautoscaler"
	"knative.dev/serving/pkg/reconciler/autoscaling/config"
	kparesources "knative.dev/serving/pkg/reconciler/autoscaling/kpa/resources"

	"github.com/rouse-dev/rouse/api"
)

type reconciler struct{ fleet *Fleet }

var (
	_ pareconciler.Interface            = (*reconciler)(nil)
	_ pkgreconciler.OnDeletionInterface = (*reconciler)(nil)
)

// ReconcileKind brings one PodAutoscaler up to date:
//
//  1. the declaration goes to the core, and its errors, as failed starts, to the user
//  2. its Service leads to every activator
//  3. the Deployment has the wanted scale
//  4. the status shows how many instances are awake and wanted
//  5. Service and revision show lost names, the revision also why it can't become ready
func (r *reconciler) ReconcileKind(ctx context.Context, pa *autoscalingv1alpha1.PodAutoscaler) pkgreconciler.Event {
	ctx, cancel := context.WithTimeout(ctx, pkgreconciler.DefaultTimeout)
	defer cancel()
	name := api.NewFunctionName(pa.Namespace, pa.Name)
	s := r.scaling(ctx, pa)
	rev, _, news, err := r.fleet.declare(ctx, name, s) // 1
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if news.message != "" {
		events := controller.GetEventRecorder(ctx)
		events.Event(rev, corev1.EventTypeWarning, news.reason, news.message)
		events.Event(pa, corev1.EventTypeWarning, news.reason, news.message)
	}
	r.writePolicies(ctx, rev)
	if err := r.keepService(ctx, pa); err != nil { // 2
		return err
	}
	if err := r.fleet.scaler.keepScale(ctx, name); err != nil { // 3
		return err
	}
	c := r.fleet.takeCensus(name)
	c.writeStatus(&pa.Status, s) // 4
	service, lost := r.fleet.names.lostNames(name)
	told, err := r.markService(ctx, service, lost) // 5
	if err != nil {
		return err
	}
	if told != nil && lost != "" {
		controller.GetEventRecorder(ctx).Event(told, corev1.EventTypeWarning, reasonNames, lost)
	}
	want := rev.DeepCopy()
	changed := markNames(want.GetConditionSet().Manage(&want.Status), lost)
	if explainNotReady(want, c, s.initialized || pa.Status.IsScaleTargetInitialized()) {
		changed = true
	}
	if !changed {
		return nil
	}
	if err := patchConditions(ctx, r.fleet.deps.Serving.ServingV1().Revisions(want.Namespace), want, want.Status.Conditions); err != nil {
		return fmt.Errorf("explain %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// ObserveDeletion has the fleet forget the function. If only its PodAutoscaler was deleted, Knative makes another one.
func (r *reconciler) ObserveDeletion(_ context.Context, key types.NamespacedName) error {
	if rev, err := r.fleet.watch.revisions.Lister().Revisions(key.Namespace).Get(key.Name); err == nil && rev.DeletionTimestamp == nil {
		return controller.NewRequeueAfter(time.Second)
	}
	r.fleet.forgetFunction(api.NewFunctionName(key.Namespace, key.Name))
	return nil
}

func (r *reconciler) scaling(ctx context.Context, pa *autoscalingv1alpha1.PodAutoscaler) scaling {
	cfg := config.FromContext(ctx).Autoscaler
	least, most := pa.ScaleBounds(cfg)
	if _, _, own := knativescaling.MaxScaleAnnotation.Get(pa.Annotations); own {
		most = 0
	}
	return scaling{
		min: int(least), most: int(most), initial: int(kparesources.GetInitialScale(cfg, pa)),
		unreachable: r.unreachable(pa),
		initialized: pa.Status.IsScaleTargetInitialized(),
	}
}

// unreachable reports whether no route leads to a revision. To Knative one is unreachable, too, whose pods fit on no
// node or fail; here its requests are held.
func (r *reconciler) unreachable(pa *autoscalingv1alpha1.PodAutoscaler) bool {
	if pa.Spec.Reachability != autoscalingv1alpha1.ReachabilityUnreachable {
		return false
	}
	rev, err := r.fleet.watch.revisions.Lister().Revisions(pa.Namespace).Get(pa.Name)
	return err != nil || rev.GetRoutingState() == servingv1.RoutingStateReserve
}

// explainNotReady reports whether its condition is new. A Service ignores Active, which a PodAutoscaler affects; it uses
// ContainerHealthy, which the revision's own reconciler leaves alone.
func explainNotReady(rev *servingv1.Revision, c census, initialized bool) bool {
	var reason, message string
	switch {
	case c.problem != "":
		reason, message = reasonAnnotation, c.problem
	case !initialized && c.trouble != nil && c.wanted == 0:
		reason, message = c.trouble.reason, c.trouble.message
	default:
		return false
	}
	have := rev.Status.GetCondition(servingv1.RevisionConditionContainerHealthy)
	if have != nil && have.IsFalse() && have.Reason == reason && have.Message == message {
		return false
	}
	rev.Status.MarkContainerHealthyFalse(reason, message)
	return true
}
