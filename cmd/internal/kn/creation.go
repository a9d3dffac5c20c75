package kn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// creation is a function to create, as flags of kn service create and as pods and annotations, which are made together.
type creation struct {
	namespace, name string
	flags           map[string][]string // values by flag
	pod             corev1.PodSpec      // with one container
	parts           []part              // that the pods need
}

var flagOrder = strings.Fields("namespace image scale-init scale-min scale-max " + flagAnnotation + " request limit volume mount env env-value-from env-from service-account pull-secret arg")

const flagAnnotation = "annotation-revision"

// scaleKeys are the annotations that kn writes for flags.
var scaleKeys = map[string]string{"scale-init": "autoscaling.knative.dev/initial-scale", "scale-min": config.AnnotationMinScale, "scale-max": config.AnnotationMaxScale}

const annotationProgress = "serving.knative.dev/progress-deadline"

func newCreation(namespace, name string) *creation {
	n := &creation{namespace: namespace, name: name, flags: map[string][]string{}, pod: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}}}
	n.add("namespace", namespace)
	n.add("scale-init", "0")
	return n
}

func (n *creation) add(flag, value string) { n.flags[flag] = append(n.flags[flag], value) }

func (n *creation) container() *corev1.Container { return &n.pod.Containers[0] }

// describe adds a runtime's annotations, with timeouts for slow loads.
func (n *creation) describe(kind, model string) {
	n.annotate(config.AnnotationClass, config.Class)
	if kind != api.RuntimeEngine {
		n.annotate(config.AnnotationRuntime, kind)
	}
	if model != "" {
		n.annotate(config.AnnotationModel, model)
	}
	slow := ""
	switch {
	case kind == api.RuntimeVLLM, kind == api.RuntimeSGLang, kind == api.RuntimeRayServe:
		n.annotate(annotationProgress, "30m")
		slow = "30m"
	case strings.Contains(model, "://"): // fetched first
		slow = "15m"
	}
	if slow != "" {
		n.annotate(config.AnnotationStartTimeout, slow)
		n.annotate(config.AnnotationHoldTimeout, slow)
	}
}

func (n *creation) annotate(key, value string) {
	all := n.flags[flagAnnotation]
	if k := slices.IndexFunc(all, func(a string) bool { return strings.HasPrefix(a, key+"=") }); k >= 0 {
		all[k] = key + "=" + value
		return
	}
	n.add(flagAnnotation, key+"="+value)
}

func (n *creation) request(name corev1.ResourceName, amount string) error {
	if amount == "" {
		return nil
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil {
		return fmt.Errorf("--%s %s: %w", name, amount, err)
	}
	n.add("request", string(name)+"="+amount)
	n.container().Resources.Requests[name] = q
	return nil
}

// command is quoted for a shell.
func (n *creation) command() string {
	lines := []string{"kn service create " + quoted(n.name)}
	for _, flag := range flagOrder {
		for _, v := range n.flags[flag] {
			if flag == "arg" { // it may begin with a dash
				lines = append(lines, quoted("--arg="+v))
			} else {
				lines = append(lines, "--"+flag+" "+quoted(v))
			}
		}
	}
	return strings.Join(lines, " \\\n  ")
}

func (n *creation) service() (*unstructured.Unstructured, error) {
	annotations := map[string]any{}
	for flag, key := range scaleKeys {
		if v := n.flags[flag]; v != nil {
			annotations[key] = v[0]
		}
	}
	for _, a := range n.flags[flagAnnotation] {
		key, value, _ := strings.Cut(a, "=")
		annotations[key] = value
	}
	pod, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&n.pod)
	if err != nil {
		return nil, fmt.Errorf("write the Service: %w", err)
	}
	container := pod["containers"].([]any)[0].(map[string]any)
	delete(container, "name") // Knative chooses it
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": services.GroupVersion().String(), "kind": "Service",
		"metadata": map[string]any{"name": n.name, "namespace": n.namespace},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": pod}},
	}}, nil
}

// function parses the Service like the autoscaler.
func (n *creation) function() (api.Function, error) {
	s, err := n.service()
	if err != nil {
		return api.Function{}, err
	}
	template, _, _ := unstructured.NestedMap(s.Object, "spec", "template", "spec")
	raw, err := json.Marshal(template)
	if err != nil {
		return api.Function{}, fmt.Errorf("write the Service: %w", err)
	}
	annotations, _, _ := unstructured.NestedStringMap(s.Object, "spec", "template", "metadata", "annotations")
	f, err := config.Revision(config.RevisionSource{Namespace: n.namespace, Name: n.name + "-00001", Service: n.name, Annotations: annotations, Spec: raw})
	if err != nil {
		return f, fmt.Errorf("this would not be served: %w", err)
	}
	f.Model = cmp.Or(f.Model, api.ModelName(n.name))
	return f, nil
}

func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (n *creation) account(service, pull string) error {
	for flag, name := range map[string]string{"service-account": service, "pull-secret": pull} {
		switch {
		case name == "":
			continue
		case len(validation.IsDNS1123Subdomain(name)) > 0:
			return fmt.Errorf("--%s %q: it is no name of an object", flag, name)
		}
		n.add(flag, name)
	}
	if n.pod.ServiceAccountName = service; service != "" {
		n.parts = append(n.parts, part{"serviceAccount", service})
	}
	if pull != "" {
		n.parts = append(n.parts, part{ofSecret, pull})
		n.pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: pull}}
	}
	return nil
}
