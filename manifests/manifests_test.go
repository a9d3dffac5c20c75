package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	networking "knative.dev/networking/pkg/apis/networking/v1alpha1"
	serving "knative.dev/serving/pkg/apis/serving/v1"
	servingbeta "knative.dev/serving/pkg/apis/serving/v1beta1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/api/control"
)

// object is one YAML document.
type object interface {
	runtime.Object
	metav1.Object
}

// podMonitor is the part of the Prometheus operator's type that the files use.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector *struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Path        string `json:"path"`
			Interval    string `json:"interval"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels"`
				Separator    string   `json:"separator"`
				Regex        string   `json:"regex"`
				Action       string   `json:"action"`
				TargetLabel  string   `json:"targetLabel"`
				Replacement  string   `json:"replacement"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// DeepCopyObject is part of [runtime.Object].
func (p *podMonitor) DeepCopyObject() runtime.Object { c := *p; return &c }

// prometheusRule is the operator's, as far as the files use it.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleGroups `json:"spec"`
}

// DeepCopyObject is part of [runtime.Object].
func (p *prometheusRule) DeepCopyObject() runtime.Object { c := *p; return &c }

// others are the types that are not Kubernetes' own.
var others = map[schema.GroupVersionKind]func() object{
	{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}:                              func() object { return new(serving.Service) },
	{Group: "serving.knative.dev", Version: "v1beta1", Kind: "DomainMapping"}:                   func() object { return new(servingbeta.DomainMapping) },
	{Group: "networking.internal.knative.dev", Version: "v1alpha1", Kind: "ClusterDomainClaim"}: func() object { return new(networking.ClusterDomainClaim) },
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:                      func() object { return new(gateway.HTTPRoute) },
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}:                         func() object { return new(podMonitor) },
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}:                     func() object { return new(prometheusRule) },
}

// decode reads a YAML stream into the types of its documents; an unknown field
// or a value of the wrong kind ends the test.
func decode(t *testing.T, stream []byte) []object {
	t.Helper()
	var all []object
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("not YAML: %v\n%s", err, doc)
		}
		if head.Kind == "" { // only comments
			continue
		}
		o, err := newObject(head.GroupVersionKind())
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if err := yaml.UnmarshalStrict(doc, o); err != nil {
			t.Fatalf("%s: %v\n%s", head.Kind, err, doc)
		}
		all = append(all, o)
	}
}

func newObject(kind schema.GroupVersionKind) (object, error) {
	if make, found := others[kind]; found {
		return make(), nil
	}
	o, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	named, is := o.(object)
	if !is {
		return nil, fmt.Errorf("%v has no metadata", kind)
	}
	return named, nil
}

// rendered returns the objects of an overlay.
func rendered(t *testing.T, overlay string, components ...string) []object {
	t.Helper()
	out, err := Render(overlay, nil, components...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, out)
}

// of returns the objects of one type.
func of[T object](all []object) []T {
	var some []T
	for _, o := range all {
		if one, is := o.(T); is {
			some = append(some, one)
		}
	}
	return some
}

// TestOverlaysAreRouseOnly renders every overlay, with and without components: what is
// applied and deleted with it must never be an object of Knative's.
func TestOverlaysAreRouseOnly(t *testing.T) {
	for _, overlay := range Overlays() {
		for _, components := range [][]string{nil, Components()} {
			if overlay == "agent" { // it has it already
				components = slices.DeleteFunc(components, func(c string) bool { return c == "agent" })
			}
			t.Run(overlay+"+"+strings.Join(components, ","), func(t *testing.T) {
				all := rendered(t, overlay, components...)
				want := 2
				for _, more := range []string{"relay", "agent", "any-image", "page"} {
					if slices.Contains(components, more) || overlay == more {
						want++
					}
				}
				if n := len(of[*appsv1.Deployment](all)); n != want {
					t.Errorf("%d Deployments, want the activator's and the autoscaler's, and the relay's, the agent's, the injector's and the page's where they are", n)
				}
				for _, o := range all {
					what := fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())
					if !strings.HasPrefix(o.GetName(), "rouse") {
						t.Errorf("%s: its name does not begin with rouse", what)
					}
					if len(components) == 0 && o.GetLabels()["app.kubernetes.io/part-of"] != "rouse" && overlay != "time-slicing" {
						t.Errorf("%s: its labels do not say that it is Rouse's", what)
					}
					if ns := o.GetNamespace(); ns != "" && ns != control.SystemNamespace && overlay != "time-slicing" {
						t.Errorf("%s: want namespace %s", what, control.SystemNamespace)
					}
				}
			})
		}
	}
}

// TestRenderIsKubectls compares with what "kubectl apply -k" would apply.
func TestRenderIsKubectls(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl here")
	}
	for _, overlay := range Overlays() {
		want, err := exec.Command("kubectl", "kustomize", filepath.Join("overlays", overlay)).Output()
		if err != nil {
			t.Fatalf("kubectl kustomize overlays/%s: %v", overlay, err)
		}
		got, err := Render(overlay, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, want), decode(t, got)); diff != "" {
			t.Errorf("%s: kubectl (-) and Render (+) differ:\n%s", overlay, diff)
		}
	}
}

// TestKustomizationOfTheBenchmark renders what make bench-cluster applies.
func TestKustomizationOfTheBenchmark(t *testing.T) {
	if _, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../e2e/knative/injector"); err != nil {
		t.Error(err)
	}
}

func TestRenderReplacesImages(t *testing.T) {
	out, err := Render("default", map[string]string{
		"dev.local/rouse-activator":  "ghcr.io/me/activator:v2",
		"dev.local/rouse-autoscaler": "ghcr.io/me/autoscaler@sha256:" + strings.Repeat("0", 64),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range of[*appsv1.Deployment](decode(t, out)) {
		got[d.Name] = d.Spec.Template.Spec.Containers[0].Image
	}
	want := map[string]string{
		"rouse-activator":  "ghcr.io/me/activator:v2",
		"rouse-autoscaler": "ghcr.io/me/autoscaler@sha256:" + strings.Repeat("0", 64),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct {
		overlay   string
		images    map[string]string
		component string
		want      string
	}{
		{overlay: "production", want: `no overlay "production": there are agent, default, dev, dual-pods, time-slicing`},
		{overlay: "../base", want: "no overlay"},
		{overlay: "default", component: "monitor", want: `no component "monitor": there are agent, alerts, any-image, dcgm, front, monitoring`},
		{overlay: "default", images: map[string]string{"dev.local/rouse-activator": "a b"}, want: "want NAME:TAG"},
	} {
		var components []string
		if c.component != "" {
			components = []string{c.component}
		}
		if _, err := Render(c.overlay, c.images, components...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("overlay %q: error %v, want one with %q", c.overlay, err, c.want)
		}
	}
}

// TestPodsAreHardened checks the rules of a namespace of the level "restricted", and a read-only root.
func TestPodsAreHardened(t *testing.T) {
	for _, d := range of[*appsv1.Deployment](rendered(t, "agent", "any-image", "page", "relay")) {
		pod := d.Spec.Template.Spec
		s := pod.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: want runAsNonRoot and the seccomp profile RuntimeDefault", d.Name)
		}
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			s := c.SecurityContext
			if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
				t.Errorf("%s: want a read-only root and no escalation of privileges", d.Name)
			}
			if s == nil || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) != 0 {
				t.Errorf("%s: want all capabilities dropped", d.Name)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: want requests for processor and memory, and a limit for memory", d.Name)
			}
			if (c.ReadinessProbe == nil || c.LivenessProbe == nil) && c.Name != "function" {
				t.Errorf("%s: want both probes", d.Name)
			}
		}
	}
}

// yamlFiles returns the paths of all files below a folder that hold objects.
func yamlFiles(t *testing.T, folder string) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(files, folder, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(p, ".yaml") && e.Name() != "kustomization.yaml" {
			all = append(all, p)
		}
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files below %s, %v", len(all), folder, err)
	}
	return all
}

func read(t *testing.T, p string) []byte {
	t.Helper()
	content, err := fs.ReadFile(files, p)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(content)
}
