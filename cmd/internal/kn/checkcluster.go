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
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/manifests"
)

// The oldest Kubernetes that supports the manifests, and the first that can resize a running pod's requests.
var (
	oldestKubernetes = utilversion.MajorMinor(1, 30)
	resizes          = utilversion.MajorMinor(1, 33)
)

func (c *checker) kubernetes() error {
	info, err := c.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the cluster for its version: %w", err)
	}
	v, err := utilversion.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		c.add("kubernetes", resultUnknown, "", "version %q", info.GitVersion)
	case !v.AtLeast(oldestKubernetes):
		c.add("kubernetes", resultMissing, "bring the cluster to "+oldestKubernetes.String()+" or newer: admission policies are not in this one", "%s", info.GitVersion)
	case !v.AtLeast(resizes):
		c.add("kubernetes", resultWarning, "from "+resizes.String()+" on, pods of functions that sleep give back the resources that they request; before, they are deleted where others need them", "%s", info.GitVersion)
	default:
		c.add("kubernetes", resultOK, "", "%s", info.GitVersion)
	}
	return nil
}

type object struct {
	*unstructured.Unstructured
	resource  schema.GroupVersionResource
	namespace string // empty: not namespaced
}

// kinds checks that the cluster has the kinds to apply, and keeps the objects of known kinds.
func (c *checker) kinds() error {
	stream, err := manifests.Render(c.plan.overlay, nil, c.plan.components...)
	if err != nil {
		return err
	}
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	var lacks []string
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
			return fmt.Errorf("read the manifests: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		kind := u.GroupVersionKind()
		m, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			if name := u.GetKind() + " (" + u.GetAPIVersion() + ")"; !slices.Contains(lacks, name) {
				lacks = append(lacks, name)
			}
			continue
		case err != nil:
			c.failed("kinds", fmt.Errorf("ask the cluster for its kinds: %w", err))
			return nil
		}
		o := object{Unstructured: u, resource: m.Resource}
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			o.namespace = cmp.Or(u.GetNamespace(), control.SystemNamespace)
		}
		c.objects = append(c.objects, o)
	}
	if len(lacks) > 0 {
		c.add("kinds", resultMissing, "install what defines them, or leave their component out", "none of %s", strings.Join(lacks, ", "))
		return nil
	}
	c.add("kinds", resultOK, "", "all of those of %d objects", len(c.objects))
	return nil
}

func (c *checker) rights(ctx context.Context) {
	var all []right
	for _, o := range c.objects {
		for _, verb := range []string{"get", "create", "patch"} {
			all = append(all, right{verb: verb, group: o.resource.Group, resource: o.resource.Resource, namespace: o.namespace})
		}
	}
	lacks, err := c.missing(ctx, all)
	switch {
	case err != nil:
		c.failed("rights", err)
		return
	case len(lacks) > 0:
		lines := make([]string, len(lacks))
		for i, r := range lacks {
			lines[i] = "kubectl auth can-i " + r.String()
		}
		c.add("rights", resultMissing, "an administrator installs Rouse, or gives you these:\n"+strings.Join(lines, "\n"), "%d that installing needs are not yours", len(lacks))
		return
	}
	c.add("rights", resultOK, "", "you may install")
	var refused []string
	for _, o := range c.objects {
		opts := metav1.ApplyOptions{FieldManager: "rouse", Force: true, DryRun: []string{metav1.DryRunAll}}
		if _, err := c.dyn.Resource(o.resource).Namespace(o.namespace).Apply(ctx, o.GetName(), o.Unstructured, opts); err != nil {
			refused = append(refused, fmt.Sprintf("apply %s %s: %v", o.GetKind(), strings.TrimPrefix(o.namespace+"/"+o.GetName(), "/"), err))
		}
	}
	if len(refused) > 0 {
		c.add("admission", resultMissing, strings.Join(refused, "\n"), "%d of %d objects would be refused", len(refused), len(c.objects))
		return
	}
	c.add("admission", resultOK, "", "the cluster would take all %d objects", len(c.objects))
}

// ingresses are the Deployments of Knative's ingresses, by class.
var ingresses = map[string][]string{
	"kourier.ingress.networking.knative.dev":     {control.SystemNamespace + "/net-kourier-controller", "kourier-system/3scale-kourier-gateway"},
	"istio.ingress.networking.knative.dev":       {control.SystemNamespace + "/net-istio-controller"},
	"contour.ingress.networking.knative.dev":     {control.SystemNamespace + "/net-contour-controller"},
	"gateway-api.ingress.networking.knative.dev": {control.SystemNamespace + "/net-gateway-api-controller"},
}

// usualIngress is Knative's default.
const usualIngress = "istio.ingress.networking.knative.dev"

func (c *checker) ingress(ctx context.Context) {
	network, err := c.configMap(ctx, "config-network")
	if err != nil {
		c.failed("ingress", err)
		return
	}
	class := cmp.Or(network["ingress-class"], network["ingress.class"], usualIngress)
	short, _, _ := strings.Cut(class, ".")
	wants, known := ingresses[class]
	if !known {
		c.add("ingress", resultOK, "", "%s, which is none of Knative's own: its controller was not looked for", class)
		return
	}
	for _, want := range wants {
		namespace, name, _ := strings.Cut(want, "/")
		available, found, err := c.deployment(ctx, namespace, name)
		switch {
		case err != nil:
			c.failed("ingress", err)
			return
		case !found:
			c.add("ingress", resultMissing, "install it (https://knative.dev/docs/install/), or name the one that you have: kubectl patch configmap/config-network -n "+control.SystemNamespace+` --type merge -p '{"data":{"ingress-class":"CLASS"}}'`, "%s, and there is no Deployment %s", short, want)
			return
		case available == 0:
			c.add("ingress", resultMissing, "kubectl describe deployment -n "+namespace+" "+name, "%s, and the Deployment %s has no pod that is available", short, want)
			return
		}
	}
	c.add("ingress", resultOK, "", "%s", short)
}

func (c *checker) features(ctx context.Context) {
	features, err := c.configMap(ctx, "config-features")
	if err != nil {
		c.failed("features", err)
		return
	}
	var lacks []string
	for _, f := range []struct{ key, usual, what string }{
		{"kubernetes.podspec-volumes-emptydir", "enabled", "volumes of memory, which vLLM and SGLang want as /dev/shm"},
		{"kubernetes.podspec-persistent-volume-claim", "disabled", "persistent volumes, where fetched models stay"},
	} {
		if cmp.Or(strings.ToLower(features[f.key]), f.usual) == "disabled" {
			lacks = append(lacks, f.what+" ("+f.key+")")
		}
	}
	if len(lacks) > 0 {
		c.add("features", resultWarning, "where functions want them, set the keys to \"enabled\" in the ConfigMap config-features of "+control.SystemNamespace, "off are %s", strings.Join(lacks, ", "))
		return
	}
	c.add("features", resultOK, "", "volumes of memory and persistent ones")
}

// A missing ConfigMap is empty.
func (c *checker) configMap(ctx context.Context, name string) (map[string]string, error) {
	m, err := get[corev1.ConfigMap](ctx, c.cluster, configMaps, control.SystemNamespace, name)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return m.Data, err
}

func (c *checker) deployment(ctx context.Context, namespace, name string) (available int32, found bool, err error) {
	d, err := get[appsv1.Deployment](ctx, c.cluster, deployments, namespace, name)
	if apierrors.IsNotFound(err) {
		return 0, false, nil
	}
	return d.Status.AvailableReplicas, err == nil, err
}

func (c *checker) storage(ctx context.Context) {
	all, err := list[storagev1.StorageClass](ctx, c.cluster, storageClasses, "", "")
	if err != nil {
		c.failed("storage", err)
		return
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			c.add("storage", resultOK, "", "the default class is %s", s.Name)
			return
		}
	}
	mend := "models are fetched anew for each new pod. Where they are to stay on volumes, name a class in the claim, or make one the default: kubectl annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true"
	if len(names) == 0 {
		c.add("storage", resultWarning, mend, "there is no StorageClass")
		return
	}
	c.add("storage", resultWarning, mend, "no StorageClass is the default; there are %s", strings.Join(names, ", "))
}
