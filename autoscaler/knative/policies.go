package knative

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Labels that the cluster's operator sets on namespaces.
const (
	// labelReach is on namespaces whose pods may reach every function's pods.
	labelReach = "rouse.dev/reach-functions"
	// labelMonitoring is on namespaces whose pods read metrics.
	labelMonitoring = "rouse.dev/monitoring"
)

// The queue-proxy's own and its requests', and the instance's.
var metricsPorts = []int32{9090, 9091, control.FunctionMetricsPort}

// fenceAgain is the interval of rewriting NetworkPolicies.
const fenceAgain = 10 * time.Minute

// networkPolicies let only activators, the autoscaler, and peers allowed by the operator reach a revision's pods.
func networkPolicies(rev *servingv1.Revision) []*networkingv1.NetworkPolicy {
	byLabel := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	from := []networkingv1.NetworkPolicyPeer{
		{
			NamespaceSelector: byLabel(corev1.LabelMetadataName, control.SystemNamespace),
			PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{control.ActivatorName, control.AgentName, control.AutoscalerName}}}},
		},
		{NamespaceSelector: byLabel(labelReach, "true")},
	}
	metrics := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: byLabel(labelMonitoring, "true")}}}
	for _, port := range metricsPorts {
		metrics.Ports = append(metrics.Ports, networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))})
	}
	fence := func(name, label string, rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: rev.Namespace, Name: name,
				Labels:          map[string]string{labelManaged: control.AutoscalerName, "app.kubernetes.io/part-of": "rouse"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "serving.knative.dev/v1", Kind: "Revision", Name: rev.Name, UID: rev.UID, Controller: new(true)}},
			},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: *byLabel(label, rev.Name), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules},
		}
	}
	all := []*networkingv1.NetworkPolicy{fence(rev.Name+"-rouse", serving.RevisionLabelKey, networkingv1.NetworkPolicyIngressRule{From: from}, metrics)}
	if declaresDual(rev.Annotations) {
		requesters := networkingv1.NetworkPolicyPeer{PodSelector: byLabel(serving.RevisionLabelKey, rev.Name)}
		all = append(all, fence(rev.Name+"-rouse-provider", LabelProvider, networkingv1.NetworkPolicyIngressRule{From: append(from, requesters)}, metrics))
	}
	return all
}

// writePolicies may fail: a function works without them.
func (r *reconciler) writePolicies(ctx context.Context, rev *servingv1.Revision) {
	f, name := r.fleet, api.NewFunctionName(rev.Namespace, rev.Name)
	f.mu.Lock()
	known := f.revisions[name]
	due := known != nil && time.Since(known.fenced) >= fenceAgain
	f.mu.Unlock()
	if !due {
		return
	}
	for _, p := range networkPolicies(rev) {
		client := f.deps.Kube.NetworkingV1().NetworkPolicies(p.Namespace)
		_, err := client.Update(ctx, p, metav1.UpdateOptions{FieldManager: manager})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, p, metav1.CreateOptions{FieldManager: manager})
		}
		if err != nil {
			f.log.Warn("the pods of a function have no NetworkPolicy", "function", name, "error", fmt.Errorf("write the NetworkPolicy %s: %w", p.Name, err))
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known.fenced = time.Now()
}
