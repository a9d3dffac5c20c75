package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

type manifests struct {
	CRDs, Core, Cache []byte
}

// A module has no symbolic links: what serving's configuration links to is read in its own module.
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

func (s sources) assemble() (m manifests, err error) {
	core := s.Serving + "/config/core/"
	m.CRDs, err = read(core+"300-resources/*.yaml", s.Networking+"/config/certificate.yaml", s.Networking+"/config/domain-claim.yaml",
		s.Networking+"/config/ingress.yaml", s.Networking+"/config/serverlessservice.yaml", s.Caching+"/config/image.yaml")
	if err == nil {
		m.Core, err = read(core+"100-namespace.yaml", core+"200-serviceaccount.yaml", core+"200-roles/*.yaml", core+"configmaps/*.yaml", s.Networking+"/config/config-network.yaml",
			core+"deployments/activator.yaml", core+"deployments/autoscaler.yaml", core+"deployments/controller.yaml", core+"deployments/webhook.yaml", core+"webhooks/*.yaml")
	}
	if err == nil {
		m.Core, err = fit(m.Core)
	}
	if err == nil {
		m.Cache, err = read(core + "999-cache.yaml")
	}
	if err != nil {
		err = fmt.Errorf("assemble Knative's manifests: %w", err)
	}
	return m, err
}

var builtByKo = regexp.MustCompile(`ko://knative\.dev/serving/cmd/([a-z]+)`)

// A pattern that matches nothing is an error.
func read(patterns ...string) ([]byte, error) {
	var all [][]byte
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no file is %s: has the module another layout now?", pattern)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			all = append(all, body)
		}
	}
	text := builtByKo.ReplaceAll(bytes.Join(all, []byte("\n---\n")), []byte(knativeImage("$1")))
	text = bytes.ReplaceAll(text, []byte("version: devel"), []byte("version: "+strings.TrimPrefix(knativeVersion, "v")))
	if i := bytes.Index(text, []byte("ko://")); i >= 0 {
		return nil, fmt.Errorf("an image is left that nobody builds: %.80s", text[i:])
	}
	return text, nil
}

//go:embed knative.yaml
var overlay []byte

func fit(core []byte) ([]byte, error) {
	files := filesys.MakeFsInMemory()
	if err := errors.Join(files.WriteFile("core.yaml", core), files.WriteFile("kustomization.yaml", overlay)); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
