package knative

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkingv1alpha1 "knative.dev/networking/pkg/apis/networking/v1alpha1"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/reconciler/autoscaling/resources"
	sksresources "knative.dev/serving/pkg/reconciler/serverlessservice/resources"
	"knative.dev/serving/pkg/reconciler/serverlessservice/resources/names"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

const labelManaged = "app.kubernetes.io/managed-by"

// keepService maintains the Service that ingresses send a revision's requests to, with our ready activators as
// Endpoints; see docs/design/0005.
func (r *reconciler) keepService(ctx context.Context, pa *autoscalingv1alpha1.PodAutoscaler) error {
	if there, err := r.adoptServerlessService(ctx, pa); there || err != nil {
		return err
	}
	w, kube := r.fleet.watch, r.fleet.deps.Kube.CoreV1()
	activators, err := w.activators.Lister().Endpoints(control.SystemNamespace).Get(control.ActivatorName)
	if apierrors.IsNotFound(err) {
		activators = &corev1.Endpoints{} //nolint:staticcheck // what Knative's ingresses read
	} else if err != nil {
		return fmt.Errorf("read the activators' Endpoints: %w", err)
	}
	model := resources.MakeSKS(pa, networkingv1alpha1.SKSOperationModeProxy, 0) // which is not created
	service, endpoints := sksresources.MakePublicService(model), sksresources.MakePublicEndpoints(model, activators)
	for _, o := range []metav1.Object{service, endpoints} {
		o.SetOwnerReferences(model.OwnerReferences)
		o.GetLabels()[labelManaged] = control.AutoscalerName
	}

	err = keepObject(ctx, w.kubeServices.Lister().Services(pa.Namespace), kube.Services(pa.Namespace), service, func(s *corev1.Service) {
		s.Labels, s.OwnerReferences, s.Spec.Ports, s.Spec.Selector = service.Labels, service.OwnerReferences, service.Spec.Ports, nil
	})
	if err != nil {
		return fmt.Errorf("the Service %s/%s: %w", pa.Namespace, service.Name, err)
	}
	//nolint:staticcheck // Endpoints, which Knative's ingresses read
	err = keepObject(ctx, w.endpoints.Lister().Endpoints(pa.Namespace), kube.Endpoints(pa.Namespace), endpoints, func(e *corev1.Endpoints) {
		e.Labels, e.OwnerReferences, e.Subsets = endpoints.Labels, endpoints.OwnerReferences, endpoints.Subsets
	})
	if err != nil {
		return fmt.Errorf("the Endpoints %s/%s: %w", pa.Namespace, endpoints.Name, err)
	}
	pa.Status.ServiceName, pa.Status.MetricsServiceName = service.Name, ""
	pa.Status.MarkSKSReady()
	return nil
}

func keepObject[T interface {
	metav1.Object
	DeepCopy() T
}](ctx context.Context, listed interface{ Get(name string) (T, error) }, objects interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}, made T, set func(T)) error {
	have, err := listed.Get(made.GetName())
	if apierrors.IsNotFound(err) {
		_, err = objects.Create(ctx, made, metav1.CreateOptions{FieldManager: manager})
		return err
	}
	if err != nil {
		return err
	}
	want := have.DeepCopy()
	if set(want); !equality.Semantic.DeepEqual(want, have) {
		_, err = objects.Update(ctx, want, metav1.UpdateOptions{FieldManager: manager})
	}
	return err
}

// adoptServerlessService takes over what Knative derived from an earlier version's ServerlessService, and deletes that.
// Its deletion triggers another pass.
func (r *reconciler) adoptServerlessService(ctx context.Context, pa *autoscalingv1alpha1.PodAutoscaler) (there bool, err error) {
	sks, err := r.fleet.watch.skss.Lister().ServerlessServices(pa.Namespace).Get(pa.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil || sks.DeletionTimestamp != nil {
		return true, err
	}
	if !metav1.IsControlledBy(sks, pa) {
		pa.Status.MarkResourceNotOwned("ServerlessService", sks.Name)
		return true, fmt.Errorf("the ServerlessService %s/%s is not this PodAutoscaler's", pa.Namespace, pa.Name)
	}
	kube := r.fleet.deps.Kube.CoreV1()
	err = errors.Join(takeOver(ctx, kube.Services(pa.Namespace), pa.Name, pa), takeOver(ctx, kube.Services(pa.Namespace), names.PrivateService(pa.Name), pa),
		takeOver(ctx, kube.Endpoints(pa.Namespace), pa.Name, pa))
	if err != nil {
		return true, fmt.Errorf("take over what the ServerlessService %s/%s has made: %w", pa.Namespace, pa.Name, err)
	}
	err = r.fleet.deps.Networking.NetworkingV1alpha1().ServerlessServices(pa.Namespace).Delete(ctx, sks.Name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan), Preconditions: metav1.NewUIDPreconditions(string(sks.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("end the ServerlessService %s/%s: %w", pa.Namespace, pa.Name, err)
	}
	// Knative's activator would probe the pods behind it, sleepers' too.
	err = kube.Services(pa.Namespace).Delete(ctx, names.PrivateService(pa.Name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("end the Service %s/%s: %w", pa.Namespace, names.PrivateService(pa.Name), err)
	}
	return true, nil
}

func takeOver[T metav1.Object](ctx context.Context, objects interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}, name string, pa *autoscalingv1alpha1.PodAutoscaler) error {
	owner := metav1.OwnerReference{APIVersion: autoscalingv1alpha1.SchemeGroupVersion.String(), Kind: "PodAutoscaler", Name: pa.Name, UID: pa.UID}
	o, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err == nil && !slices.Contains(o.GetOwnerReferences(), owner) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(), owner))
		o.SetLabels(labels.Merge(o.GetLabels(), labels.Set{labelManaged: control.AutoscalerName}))
		_, err = objects.Update(ctx, o, metav1.UpdateOptions{FieldManager: manager})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Reached reports whether all requests reach our activators without Knative's activator-service, after [Fleet.Sync].
func (f *Fleet) Reached() bool {
	all, err := f.watch.skss.Lister().List(labels.Everything())
	return err == nil && !slices.ContainsFunc(all, func(s *networkingv1alpha1.ServerlessService) bool {
		return s.Annotations[config.AnnotationClass] == config.Class
	})
}
