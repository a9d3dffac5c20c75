package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"knative.dev/pkg/apis"
	knative "knative.dev/serving/pkg/apis/config"
	serving "knative.dev/serving/pkg/apis/serving/v1"
	servingbeta "knative.dev/serving/pkg/apis/serving/v1beta1"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// TestExamples reads each example function as Knative's webhook, as the
// autoscaler in a cluster and as "rouse up -f" on one machine would.
func TestExamples(t *testing.T) {
	kinds := map[string]bool{}
	for _, file := range yamlFiles(t, "examples/functions") {
		t.Run(path.Base(file), func(t *testing.T) {
			raw := read(t, file)
			all := decode(t, raw)
			services := of[*serving.Service](all)
			if len(services) != 1 || len(all) != 1 {
				t.Fatalf("%d objects, %d of them Services: want one function", len(all), len(services))
			}
			service := services[0]
			service.SetDefaults(afterInstall())
			if err := service.Validate(afterInstall()).Filter(apis.ErrorLevel); err != nil {
				t.Errorf("Knative refuses it: %v", err)
			}
			template := service.Spec.Template
			if got := template.Annotations["autoscaling.knative.dev/class"]; got != "gpu.autoscaling.rouse.dev" {
				t.Errorf("class %q, want %s", got, "gpu.autoscaling.rouse.dev")
			}
			spec, err := json.Marshal(template.Spec)
			if err != nil {
				t.Fatal(err)
			}
			f, err := config.Revision(config.RevisionSource{
				Namespace: "default", Name: service.Name + "-00001", Service: service.Name, Annotations: template.Annotations, Spec: spec,
			})
			if err != nil {
				t.Errorf("in a cluster: %v", err)
			}
			local, err := config.Parse(bytes.NewReader(raw), file, ".")
			if err != nil {
				t.Fatalf("on one machine: %v", err)
			}
			if f.Runtime.Kind != local[0].Runtime.Kind || f.Runtime.Model != local[0].Runtime.Model || f.Model != local[0].Model || len(template.Spec.Containers) == 1 && f.Memory != local[0].Memory {
				t.Errorf("a cluster and one machine read it differently:\n%+v\n%+v", f, local[0])
			}
			kinds[f.Runtime.Kind] = true
		})
	}
	for _, kind := range api.RuntimeKinds {
		if kind != api.RuntimeCommand && !kinds[kind] {
			t.Errorf("no example of the runtime %s", kind)
		}
	}
}

// TestImagesAreOfOneDigest checks that images of other vendors are named by digest, because a tag may
// change.
func TestImagesAreOfOneDigest(t *testing.T) {
	found := 0
	check := func(file, image string) {
		if strings.HasPrefix(image, "dev.local/") || strings.HasPrefix(image, "registry.example.com/") || strings.HasPrefix(image, "$") {
			return // one's own
		}
		found++
		if _, digest, pinned := strings.Cut(image, "@sha256:"); !pinned || len(digest) != 64 {
			t.Errorf("%s: the image %s has no digest", file, image)
		}
	}
	for _, file := range yamlFiles(t, "examples/functions") {
		for _, s := range of[*serving.Service](decode(t, read(t, file))) {
			for _, c := range slices.Concat(s.Spec.Template.Spec.InitContainers, s.Spec.Template.Spec.Containers) {
				check(file, c.Image)
			}
		}
	}
	entries, err := fs.ReadDir(files, "examples/images")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for line := range strings.Lines(string(read(t, "examples/images/"+e.Name()))) {
			if words := strings.Fields(line); len(words) > 1 && words[0] == "FROM" {
				check(e.Name(), words[1])
			}
			if _, image, onto := strings.Cut(line, "--onto "); onto {
				_, image, _ = strings.Cut(strings.TrimSpace(image), "=")
				check(e.Name(), image)
			}
		}
	}
	if found < 5 {
		t.Errorf("%d images: the test looks in the wrong place", found)
	}
}

// afterInstall returns a context with Knative's configuration after Rouse's installation.
func afterInstall() context.Context {
	autoscaler := autoscalerconfig.Config{AllowZeroInitialScale: true}
	return knative.ToContext(context.Background(), &knative.Config{Autoscaler: &autoscaler})
}

// TestRoutes checks that routes to the front door name its Service.
func TestRoutes(t *testing.T) {
	var all []object
	for _, file := range yamlFiles(t, "examples/routes") {
		all = append(all, decode(t, read(t, file))...)
	}
	front := slices.IndexFunc(of[*corev1.Service](rendered(t, "default")), func(s *corev1.Service) bool { return s.Name == control.FrontDoorName })
	if front < 0 {
		t.Fatalf("there is no Service %s", control.FrontDoorName)
	}
	mappings, routes := of[*servingbeta.DomainMapping](all), of[*gateway.HTTPRoute](all)
	if len(mappings) != 1 || len(routes) != 1 {
		t.Fatalf("%d DomainMappings and %d HTTPRoutes, want one of each", len(mappings), len(routes))
	}
	if m := mappings[0]; m.Spec.Ref.Name != control.FrontDoorName || m.Namespace != control.SystemNamespace {
		t.Errorf("the DomainMapping leads to %s/%s, want %s/%s", m.Namespace, m.Spec.Ref.Name, control.SystemNamespace, control.FrontDoorName)
	}
	ctx := context.Background()
	mappings[0].SetDefaults(ctx)
	if err := mappings[0].Validate(ctx).Filter(apis.ErrorLevel); err != nil {
		t.Errorf("Knative refuses the DomainMapping: %v", err)
	}
	removed := []string{}
	for _, f := range routes[0].Spec.Rules[0].Filters {
		removed = append(removed, f.RequestHeaderModifier.Remove...)
	}
	if !slices.Equal(removed, []string{"Knative-Serving-Namespace", "Knative-Serving-Revision"}) {
		t.Errorf("the HTTPRoute takes %v away, want what names a revision", removed)
	}
	backend := routes[0].Spec.Rules[0].BackendRefs[0]
	if string(backend.Name) != control.FrontDoorName || *backend.Port != 80 || routes[0].Namespace != control.SystemNamespace {
		t.Errorf("the HTTPRoute leads to %s/%s:%d, want %s/%s:80", routes[0].Namespace, backend.Name, *backend.Port, control.SystemNamespace, control.FrontDoorName)
	}
}

// TestDockerfiles checks that a function supports the runtime of each image.
func TestDockerfiles(t *testing.T) {
	entries, err := fs.ReadDir(files, "examples/images")
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d Dockerfiles, %v", len(entries), err)
	}
	for _, e := range entries {
		content := string(read(t, "examples/images/"+e.Name()))
		_, kind, found := strings.Cut(e.Name(), ".")
		if !found || !slices.Contains(api.RuntimeKinds, kind) || !strings.Contains(content, "ENV "+"ROUSE_RUNTIME"+"="+kind+"\n") {
			t.Errorf("%s does not set %s to a runtime", e.Name(), "ROUSE_RUNTIME")
		}
		if !strings.Contains(content, `ENTRYPOINT ["/usr/local/bin/rouse-function"]`) {
			t.Errorf("%s does not run the function", e.Name())
		}
	}
}

// TestFilesExample checks that the objects through which functions share files are in their namespace, with the port
// of the function's default.
func TestFilesExample(t *testing.T) {
	all := decode(t, read(t, "examples/files/files.yaml"))
	services, policies := of[*corev1.Service](all), of[*networkingv1.NetworkPolicy](all)
	if len(services) != 1 || len(policies) != 1 || len(all) != 2 {
		t.Fatalf("%d objects: want a Service and a NetworkPolicy", len(all))
	}
	s := services[0]
	if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || s.Spec.Ports[0].Port != 8013 || s.Namespace != "" {
		t.Errorf("%+v", s.Spec)
	}
	p := policies[0]
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			first, last := port.Port.IntVal, port.Port.IntVal
			if port.EndPort != nil {
				last = *port.EndPort
			}
			if first <= 8013 && 8013 <= last && len(rule.From) == 0 {
				t.Error("everybody reaches the files")
			}
		}
	}
	if p.Spec.PodSelector.MatchLabels["rouse.dev/files"] != s.Spec.Selector["rouse.dev/files"] {
		t.Error("the policy and the Service are of different pods")
	}
}
