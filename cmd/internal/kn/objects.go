package kn

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/rouse-dev/rouse/api/control"
)

// fieldManager owns the fields that install writes.
const fieldManager = "rouse"

// ownLabel is on every object of the manifests.
const ownLabel = "app.kubernetes.io/part-of=rouse"

// order is the order in which kinds are applied: what others refer to comes first.
// Deletion goes the other way. Kinds that are not here come last.
var order = []string{
	"Namespace", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ConfigMap", "Secret", "PersistentVolumeClaim", "NetworkPolicy", "Service", "PodDisruptionBudget", "DaemonSet", "Deployment", "HorizontalPodAutoscaler",
}

// kinds are those that any version of Rouse has installed, for finding what an
// older version has left. Kinds that the cluster does not know have left nothing.
var kinds = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "", Version: "v1", Kind: "ServiceAccount"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "", Version: "v1", Kind: "ConfigMap"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "", Version: "v1", Kind: "Service"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
}

// object is one object of ours and where the cluster keeps it.
type object struct {
	*unstructured.Unstructured
	resource  schema.GroupVersionResource
	namespace string // empty: it lies in none
}

// String is what progress lines and errors call it.
func (o object) String() string {
	if o.namespace != "" {
		return o.GetKind() + " " + o.namespace + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

func (o object) id() string {
	return o.resource.GroupResource().String() + " " + o.namespace + "/" + o.GetName()
}

func (c *cluster) client(o object) dynamic.ResourceInterface {
	if o.namespace == "" {
		return c.dyn.Resource(o.resource)
	}
	return c.dyn.Resource(o.resource).Namespace(o.namespace)
}

// parse reads a YAML stream into objects, in the order in which they are applied.
func (c *cluster) parse(stream []byte) ([]object, error) {
	var out []object
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		u := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(doc, &u.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		resource, namespaced, err := c.resource(u.GroupVersionKind())
		switch {
		case meta.IsNoMatchError(err):
			return nil, fmt.Errorf("the cluster has no kind %s (%s), which %s wants: install what defines it, or choose another overlay", u.GetKind(), u.GetAPIVersion(), u.GetName())
		case err != nil:
			return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
		o := object{Unstructured: u, resource: resource}
		if namespaced {
			o.namespace = cmp.Or(u.GetNamespace(), control.SystemNamespace)
		}
		out = append(out, o)
	}
	slices.SortStableFunc(out, func(a, b object) int { return cmp.Compare(rank(a.GetKind()), rank(b.GetKind())) })
	return out, nil
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// apply makes an object what it is to be. What kubectl has applied becomes install's
// own, so that fields that a later version no longer has go away.
func (c *cluster) apply(ctx context.Context, o object, dry bool) error {
	client := c.client(o)
	opts := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	} else if there, err := client.Get(ctx, o.GetName(), metav1.GetOptions{}); err == nil {
		body, err := csaupgrade.UpgradeManagedFieldsPatch(there, sets.New("kubectl-client-side-apply", "kubectl"), fieldManager)
		if err != nil {
			return fmt.Errorf("apply %s: %w", o, err)
		}
		if body != nil {
			if _, err := client.Patch(ctx, o.GetName(), types.JSONPatchType, body, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("apply %s: take it over from kubectl: %w", o, err)
			}
		}
	}
	if _, err := client.Apply(ctx, o.GetName(), o.Unstructured, opts); err != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("apply %s: the cluster refuses it: %w", o, err)
		}
		return fmt.Errorf("apply %s: %w", o, err)
	}
	return nil
}

// remove deletes an object and what hangs on it; one that is not there is removed already.
func (c *cluster) remove(ctx context.Context, o object) error {
	policy := metav1.DeletePropagationBackground
	err := c.client(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return refusal(err, "delete", o.resource, o.namespace, o.GetName())
	}
	return nil
}

// ours returns the objects of Rouse that are in the cluster, in the order in which
// they would be applied. What other objects made (pods, the objects of a user's
// Service that has the same label) has an owner, and is not among them; what the
// autoscaler made for a revision is among them where made is true.
func (c *cluster) ours(ctx context.Context, made bool) ([]object, error) {
	var out []object
	for _, kind := range kinds {
		resource, namespaced, err := c.resource(kind)
		switch {
		case meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
		found, err := c.dyn.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: ownLabel})
		if apierrors.IsForbidden(err) && namespaced {
			found, err = c.dyn.Resource(resource).Namespace(control.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: ownLabel})
		}
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, refusal(err, "list", resource, "", "")
		}
		for i := range found.Items {
			u := &found.Items[i]
			if len(u.GetOwnerReferences()) > 0 && (!made || u.GetLabels()["app.kubernetes.io/managed-by"] != control.AutoscalerName) {
				continue
			}
			u.SetGroupVersionKind(kind)
			out = append(out, object{u, resource, u.GetNamespace()})
		}
	}
	slices.SortStableFunc(out, func(a, b object) int { return cmp.Compare(rank(a.GetKind()), rank(b.GetKind())) })
	return out, nil
}
