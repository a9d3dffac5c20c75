package kn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// creation is a function to create. [creation.service] and [creation.command] are two forms of it.
type creation struct {
	namespace, name string
	image           string
	// annotations are the revision's, "KEY=VALUE", the class first.
	annotations []string
	// minScale and maxScale are 0 if not given.
	minScale, maxScale int
	env, args          []string
	// memory and cpu are requests, gpus is a limit of gpuResource.
	memory, cpu string
	gpus        int
	gpuResource string
	// The cluster's objects that the container gets, and its account.
	envFrom                    []source
	envValueFrom               []variable
	volumes                    []volume
	mounts                     []mount
	serviceAccount, pullSecret string
}

// shmSize is the size of /dev/shm, which tensor parallelism and sleeping weights use.
const shmSize = "8Gi"

// Knative's annotations that kn has flags for.
const (
	annotationInitialScale = "autoscaling.knative.dev/initial-scale"
	annotationProgress     = "serving.knative.dev/progress-deadline"
)

// describe adds a runtime's annotations: the class, the model, and timeouts for slow loads.
func (n *creation) describe(kind, model string) {
	add := func(key, value string) { n.annotations = append(n.annotations, key+"="+value) }
	add(api.AnnotationClass, api.Class)
	if kind != api.RuntimeEngine {
		add(api.AnnotationRuntime, kind)
	}
	if model != "" {
		add(api.AnnotationModel, model)
	}
	slow := ""
	switch {
	case kind == api.RuntimeVLLM, kind == api.RuntimeSGLang, kind == api.RuntimeRayServe:
		add(annotationProgress, "30m")
		slow = "30m"
	case strings.Contains(model, "://"): // it is fetched first
		slow = "15m"
	}
	if slow != "" {
		add(api.AnnotationStartTimeout, slow)
		add(api.AnnotationHoldTimeout, slow)
	}
	if n.gpus > 0 && (kind == api.RuntimeVLLM || kind == api.RuntimeSGLang) {
		n.sharedMemory()
	}
}

// annotate adds annotations, replacing existing values.
func (n *creation) annotate(all ...string) {
	for _, a := range all {
		key, _, _ := strings.Cut(a, "=")
		k := slices.IndexFunc(n.annotations, func(b string) bool { return strings.HasPrefix(b, key+"=") })
		if k >= 0 {
			n.annotations[k] = a
		} else {
			n.annotations = append(n.annotations, a)
		}
	}
}

// command returns the kn command that creates the same Service, quoted for a shell.
func (n *creation) command() string {
	lines := []string{"kn service create " + quoted(n.name)}
	add := func(flag string, values ...string) {
		for _, v := range values {
			lines = append(lines, flag+" "+quoted(v))
		}
	}
	add("--namespace", n.namespace)
	add("--image", n.image)
	add("--scale-init", "0")
	if n.minScale > 0 {
		add("--scale-min", fmt.Sprint(n.minScale))
	}
	if n.maxScale > 0 {
		add("--scale-max", fmt.Sprint(n.maxScale))
	}
	add("--annotation-revision", n.annotations...)
	for _, r := range [][2]string{{"cpu", n.cpu}, {"memory", n.memory}} {
		if r[1] != "" {
			add("--request", r[0]+"="+r[1])
		}
	}
	if n.gpus > 0 {
		add("--limit", fmt.Sprintf("%s=%d", n.gpuResource, n.gpus))
	}
	for _, v := range n.volumes {
		add("--volume", v.spell())
	}
	for _, m := range n.mounts {
		add("--mount", m.spell())
	}
	add("--env", n.env...)
	for _, v := range n.envValueFrom {
		add("--env-value-from", v.name+"="+v.kind+":"+v.source.name+":"+v.key)
	}
	for _, s := range n.envFrom {
		add("--env-from", s.kind+":"+s.name)
	}
	for _, f := range [][2]string{{"--service-account", n.serviceAccount}, {"--pull-secret", n.pullSecret}} {
		if f[1] != "" {
			add(f[0], f[1])
		}
	}
	for _, a := range n.args {
		lines = append(lines, quoted("--arg="+a))
	}
	return strings.Join(lines, " \\\n  ")
}

// service returns the Service.
func (n *creation) service() *unstructured.Unstructured {
	annotations := map[string]any{annotationInitialScale: "0"}
	if n.minScale > 0 {
		annotations[api.AnnotationMinScale] = fmt.Sprint(n.minScale)
	}
	if n.maxScale > 0 {
		annotations[api.AnnotationMaxScale] = fmt.Sprint(n.maxScale)
	}
	for _, a := range n.annotations {
		key, value, _ := strings.Cut(a, "=")
		annotations[key] = value
	}
	resources := map[string]any{}
	for _, r := range [][2]string{{"cpu", n.cpu}, {"memory", n.memory}} {
		if r[1] != "" {
			resources["requests"] = with(resources["requests"], r[0], r[1])
		}
	}
	if n.gpus > 0 {
		resources["limits"] = with(nil, n.gpuResource, fmt.Sprint(n.gpus))
	}
	container := map[string]any{"image": n.image}
	if len(resources) > 0 {
		container["resources"] = resources
	}
	env, from := n.environment()
	if env != nil {
		container["env"] = env
	}
	if from != nil {
		container["envFrom"] = from
	}
	for _, a := range n.args {
		all, _ := container["args"].([]any)
		container["args"] = append(all, a)
	}
	return n.around(container, annotations)
}

// around returns the Service of a container.
func (n *creation) around(container, annotations map[string]any) *unstructured.Unstructured {
	spec := map[string]any{}
	for _, m := range n.mounts {
		all, _ := container["volumeMounts"].([]any)
		container["volumeMounts"] = append(all, n.mountObject(m))
	}
	for _, v := range n.volumes {
		all, _ := spec["volumes"].([]any)
		spec["volumes"] = append(all, v.object())
	}
	if n.serviceAccount != "" {
		spec["serviceAccountName"] = n.serviceAccount
	}
	if n.pullSecret != "" {
		spec["imagePullSecrets"] = []any{map[string]any{"name": n.pullSecret}}
	}
	spec["containers"] = []any{container}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": services.GroupVersion().String(), "kind": "Service",
		"metadata": map[string]any{"name": n.name, "namespace": n.namespace},
		"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}},
	}}
}

// with sets a key of an object, which may not exist yet.
func with(object any, key, value string) map[string]any {
	m, _ := object.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m[key] = value
	return m
}

// function parses the Service like the autoscaler, with the same errors.
func (n *creation) function() (api.Function, error) {
	s := n.service()
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

// quoted quotes a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
