package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// manifests is Knative Serving as the cluster applies it, in three steps.
type manifests struct {
	CRDs, Core, Cache []byte
}

// sources are the folders of the modules that Knative's YAML lies in. A module
// has no symbolic links, so what serving's configuration links to is read in the
// module that it is in.
type sources struct {
	Serving, Networking, Caching string
}

func (b builder) sources(ctx context.Context) (sources, error) {
	dir := func(path string) (string, error) {
		cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
		cmd.Dir = b.places.build("knative")
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("find the module %s: %w", path, errors.Join(err, said(err)))
		}
		var m struct{ Dir string }
		if err := json.Unmarshal(out, &m); err != nil {
			return "", fmt.Errorf("find the module %s: %w", path, err)
		}
		return m.Dir, nil
	}
	var s sources
	for path, to := range map[string]*string{
		"knative.dev/serving": &s.Serving, "knative.dev/networking": &s.Networking, "knative.dev/caching": &s.Caching,
	} {
		d, err := dir(path)
		if err != nil {
			return s, err
		}
		*to = d
	}
	return s, nil
}

// assemble reads Knative's YAML from its modules and makes it fit this cluster:
// images that are here, this cluster's ingress and domain, readiness probed every
// second, small requests of CPU. Ingress and domain must be in the ConfigMaps from the start, for later
// Knative's webhook guards them.
func (s sources) assemble() (manifests, error) {
	join := filepath.Join
	core := join(s.Serving, "config/core")
	var m manifests
	for _, part := range []struct {
		to    *[]byte
		files []string
	}{
		{&m.CRDs, []string{
			join(core, "300-resources/*.yaml"), join(s.Networking, "config/certificate.yaml"), join(s.Networking, "config/domain-claim.yaml"),
			join(s.Networking, "config/ingress.yaml"), join(s.Networking, "config/serverlessservice.yaml"), join(s.Caching, "config/image.yaml"),
		}},
		{&m.Core, []string{
			join(core, "100-namespace.yaml"), join(core, "200-serviceaccount.yaml"), join(core, "200-roles/*.yaml"),
			join(core, "configmaps/*.yaml"), join(s.Networking, "config/config-network.yaml"),
			join(core, "deployments/activator.yaml"), join(core, "deployments/autoscaler.yaml"),
			join(core, "deployments/controller.yaml"), join(core, "deployments/webhook.yaml"), join(core, "webhooks/*.yaml"),
		}},
		{&m.Cache, []string{join(core, "999-cache.yaml")}},
	} {
		body, err := read(part.files)
		if err != nil {
			return m, fmt.Errorf("assemble Knative's manifests: %w", err)
		}
		*part.to = body
	}
	return m, nil
}

// read reads all documents of the files that match, each changed as this cluster
// needs it. A pattern that matches nothing is an error.
func read(patterns []string) ([]byte, error) {
	var out bytes.Buffer
	to := yaml.NewEncoder(&out)
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no file is %s: has the module another layout now?", pattern)
		}
		slices.Sort(files)
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := convert(to, bytes.NewReader(body)); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if err := to.Close(); err != nil {
		return nil, err
	}
	if i := bytes.Index(out.Bytes(), []byte("ko://")); i >= 0 {
		return nil, fmt.Errorf("an image is left that nobody builds: %.80s", out.Bytes()[i:])
	}
	return out.Bytes(), nil
}

func convert(to *yaml.Encoder, from io.Reader) error {
	dec := yaml.NewDecoder(from)
	for {
		var doc map[string]any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if doc == nil {
			continue
		}
		if err := to.Encode(fit(doc)); err != nil {
			return err
		}
	}
}

var builtByKo = regexp.MustCompile(`^ko://knative\.dev/serving/cmd/([a-z]+)$`)

// fit changes one object so that it suits this cluster.
func fit(doc map[string]any) map[string]any {
	doc = walk(doc).(map[string]any)
	name, _ := at(doc, "metadata", "name").(string)
	switch {
	case doc["kind"] == "Deployment":
		modest(doc)
	case doc["kind"] == "ConfigMap" && name == "config-network":
		setKey(doc, "ingress-class", ingressClass)
	case doc["kind"] == "ConfigMap" && name == "config-domain":
		setKey(doc, Domain, "")
	}
	return doc
}

// walk replaces what stands for an image or a version, and has readiness probed
// every second: at 5 or 10 seconds, one early probe costs that much.
func walk(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = walk(e)
			if probe, ok := e.(map[string]any); ok && k == "readinessProbe" {
				probe["periodSeconds"] = 1
			}
			if k == "app.kubernetes.io/version" && e == "devel" {
				v[k] = strings.TrimPrefix(knativeVersion, "v")
			}
		}
	case []any:
		for i, e := range v {
			v[i] = walk(e)
		}
	case string:
		if m := builtByKo.FindStringSubmatch(v); m != nil {
			return knativeImage(m[1])
		}
	}
	return v
}

// modest has the pods of a Deployment request little CPU: the node is small, and what they request nobody else has.
func modest(deployment map[string]any) {
	containers, _ := at(deployment, "spec", "template", "spec", "containers").([]any)
	for _, c := range containers {
		if requests, ok := at(c.(map[string]any), "resources", "requests").(map[string]any); ok {
			requests["cpu"] = "10m"
		}
	}
}

func at(doc map[string]any, path ...string) any {
	var v any = doc
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// setKey sets a key of a ConfigMap.
func setKey(configMap map[string]any, key, value string) {
	data, ok := configMap["data"].(map[string]any)
	if !ok {
		data = map[string]any{}
		configMap["data"] = data
	}
	data[key] = value
}
