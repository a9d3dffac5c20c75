package cluster

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// tools are the packages of a go.mod's tool lines.
func tools(gomod string) (all []string) {
	inside := false
	for line := range strings.Lines(gomod) {
		line = strings.TrimSpace(line)
		switch pkg, one := strings.CutPrefix(line, "tool "); {
		case line == "tool (":
			inside = true
		case line == ")":
			inside = false
		case inside:
			all = append(all, line)
		case one:
			all = append(all, pkg)
		}
	}
	return all
}

func TestFit(t *testing.T) {
	const before = `
kind: Deployment
metadata: {name: activator, labels: {app.kubernetes.io/version: devel}}
spec:
  template:
    spec:
      containers:
      - image: ko://knative.dev/serving/cmd/activator
        readinessProbe: {periodSeconds: 5, failureThreshold: 5}
        livenessProbe: {periodSeconds: 10}
---
# nothing but a comment
---
kind: ConfigMap
metadata: {name: config-network}
data: {_example: text}
---
kind: ConfigMap
metadata: {name: config-domain}
`
	const want = `kind: Deployment
metadata:
    labels:
        app.kubernetes.io/version: 0.51.0
    name: activator
spec:
    template:
        spec:
            containers:
                - image: dev.local/knative-activator:v1
                  livenessProbe:
                    periodSeconds: 10
                  readinessProbe:
                    failureThreshold: 5
                    periodSeconds: 1
---
data:
    _example: text
    ingress-class: mini.ingress.networking.knative.dev
kind: ConfigMap
metadata:
    name: config-network
---
data:
    example.com: ""
kind: ConfigMap
metadata:
    name: config-domain
`
	var got bytes.Buffer
	if err := convert(yaml.NewEncoder(&got), strings.NewReader(before)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("the manifests (-want +got):\n%s", diff)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": "image: ko://example.com/other", "b.yaml": "a: [", "c.yaml": "- list"})
	for file, want := range map[string]string{
		"a.yaml": "an image is left that nobody builds: ko://example.com/other",
		"b.yaml": "b.yaml: ", "c.yaml": "c.yaml: ", "d.yaml": "no file is",
	} {
		if _, err := read([]string{filepath.Join(dir, file)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}

// What the pinned modules hold is all that a cluster needs.
func TestAssemble(t *testing.T) {
	p, err := FindPlaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from, err := builder{places: p, log: slog.New(slog.DiscardHandler)}.sources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := from.assemble()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, part := range [][]byte{m.CRDs, m.Core, m.Cache} {
		for dec := yaml.NewDecoder(bytes.NewReader(part)); ; {
			var doc map[string]any
			if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got[doc["kind"].(string)]++
			if doc["kind"] == "Deployment" {
				for _, c := range at(doc, "spec", "template", "spec", "containers").([]any) {
					if cpu := at(c.(map[string]any), "resources", "requests", "cpu"); cpu != "10m" {
						t.Errorf("%v: its pods request %v CPU, want 10m", at(doc, "metadata", "name"), cpu)
					}
				}
			}
		}
	}
	for kind, want := range map[string]int{
		"CustomResourceDefinition": 12, "Deployment": 4, "Namespace": 1, "Image": 1,
		"ValidatingWebhookConfiguration": 2, "MutatingWebhookConfiguration": 1,
	} {
		if got[kind] != want {
			t.Errorf("%s: got %d, want %d", kind, got[kind], want)
		}
	}
}
