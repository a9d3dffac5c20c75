package cluster

import (
	"bytes"
	"errors"
	"fmt"
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
apiVersion: apps/v1
kind: Deployment
metadata: {name: activator, namespace: knative-serving}
spec:
  template:
    spec:
      containers:
      - image: some
        readinessProbe: {periodSeconds: 5, failureThreshold: 5}
        livenessProbe: {periodSeconds: 10}
        resources: {requests: {cpu: 300m, memory: 60Mi}}
---
# nothing but a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-network, namespace: knative-serving}
data: {_example: text}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-domain, namespace: knative-serving}
`
	const want = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: activator
  namespace: knative-serving
spec:
  template:
    spec:
      containers:
      - image: some
        livenessProbe:
          periodSeconds: 10
        readinessProbe:
          failureThreshold: 5
          periodSeconds: 1
        resources:
          requests:
            cpu: 10m
            memory: 60Mi
---
apiVersion: v1
data:
  _example: text
  ingress-class: ` + ingressClass + `
kind: ConfigMap
metadata:
  name: config-network
  namespace: knative-serving
---
apiVersion: v1
data:
  ` + Domain + `: ""
kind: ConfigMap
metadata:
  name: config-domain
  namespace: knative-serving
`
	got, err := fit([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the manifests (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"a: [", "- list", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: another}\n"} {
		if _, err := fit([]byte(bad)); err == nil {
			t.Errorf("%q fits", bad)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": "image: ko://example.com/other"})
	for file, want := range map[string]string{
		"a.yaml": "an image is left that nobody builds: ko://example.com/other",
		"d.yaml": "no file is",
	} {
		if _, err := read(filepath.Join(dir, file)); err == nil || !strings.Contains(err.Error(), want) {
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
			if doc == nil { // a comment
				continue
			}
			got[doc["kind"].(string)]++
			if text := fmt.Sprint(doc); doc["kind"] == "Deployment" && (strings.Count(text, "requests:map[cpu:10m ") != 1 || strings.Count(text, "image:dev.local/knative-") != 1) {
				t.Errorf("a Deployment: %s", text)
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
