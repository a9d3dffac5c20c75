package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/manifests"
)

const version = "v1.2.3"

// parsed are the objects of a stream, by what they are. Most choices have most objects in common: each text is read once.
func parsed(t *testing.T, stream string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for text := range strings.SplitSeq("\n"+stream, "\n---\n") {
		text = strings.TrimSpace(text)
		o, ok := readObjects[text]
		if !ok {
			if err := yaml.Unmarshal([]byte(text), &o.content); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if o.content != nil {
				var err error
				if o.id, err = identity(text); err != nil {
					t.Fatal(err)
				}
			}
			readObjects[text] = o
		}
		if o.content == nil {
			continue
		}
		if all[o.id] != nil {
			t.Errorf("%s is there twice", o.id)
		}
		all[o.id] = o.content
	}
	return all
}

var readObjects = map[string]struct {
	id      string
	content any
}{}

// kustomized renders the same choice without Helm.
func kustomized(t *testing.T, c choice) map[string]any {
	t.Helper()
	images := map[string]string{}
	for _, name := range programs {
		images[local+name] = "reg.example/x/" + name + ":" + version
	}
	text, err := manifests.Render(c.overlay, images, c.names()...)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

// some are choices of every overlay: no component, each one, all but one, and all; with -short all and none.
func some() (list []choice) {
	for _, overlay := range manifests.Overlays() {
		for set := range 1 << len(components) {
			c := choice{overlay, map[string]bool{}}
			for k, name := range components {
				c.has[name] = set>>k&1 == 1
			}
			without := len(components) - len(c.names())
			few := without == 0 || without == len(components)
			if c.fits() && (few || !testing.Short() && (without == 1 || without == len(components)-1)) {
				list = append(list, c)
			}
		}
	}
	return list
}

// made is the chart, which takes seconds to make.
var made = sync.OnceValues(func() (map[string]string, error) { return chart(version, "reg.example/x") })

// TestTheChartIsTheManifests executes the templates for every such choice.
func TestTheChartIsTheManifests(t *testing.T) {
	files, err := made()
	if err != nil {
		t.Fatal(err)
	}
	var there any // the Deployment that is in the cluster
	registry := "reg.example/x"
	tmpl := template.Must(template.New("").Funcs(template.FuncMap{ // Helm's functions that the templates use
		"has":        func(s string, all []string) bool { return slices.Contains(all, s) },
		"list":       func(all ...string) []string { return all },
		"default":    func(or, v any) any { return map[bool]any{true: or, false: v}[v == nil || v == ""] },
		"toJson":     func(v any) string { raw, _ := json.Marshal(v); return string(raw) },
		"lookup":     func(_, _, _, _ string) any { return there },
		"get":        func(m any, key string) string { all, _ := m.(map[string]any); s, _ := all[key].(string); return s },
		"dict":       func() map[string]any { return map[string]any{} },
		"printf":     fmt.Sprintf,
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"fail":       func(why string) (string, error) { return "", errors.New(why) },
	}).Parse(files["templates/rouse.yaml"]))
	execute := func(overlay string, components []string, secrets ...any) (string, error) {
		var out bytes.Buffer
		err := tmpl.Execute(&out, map[string]any{
			"Values":  map[string]any{"registry": registry, "tag": "", "imagePullSecrets": secrets, "overlay": overlay, "components": components},
			"Chart":   map[string]any{"AppVersion": version},
			"Release": map[string]any{"Name": "rouse", "Namespace": "ns"},
		})
		return out.String(), err
	}
	for _, c := range some() {
		got, err := execute(c.overlay, c.names())
		if err != nil {
			t.Fatalf("%s with %v: %v", c.overlay, c.names(), err)
		}
		if diff := cmp.Diff(kustomized(t, c), parsed(t, got)); diff != "" {
			t.Fatalf("%s with %v is not what kustomize makes of it:\n%s", c.overlay, c.names(), diff)
		}
	}
	if _, err := execute("agent", []string{"relay"}); err == nil {
		t.Error("an agent with components is taken")
	}
	for by, want := range map[string]string{"rouse ns": "", " ": "", "rouse other": "as the release rouse in the namespace other", "mine ns": "as the release mine"} {
		name, in, _ := strings.Cut(by, " ")
		there = map[string]any{"metadata": map[string]any{"annotations": map[string]any{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": in}}}
		if _, err := execute("default", nil); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("where there is %q: %v, want %q", by, err, want)
		}
	}
	there = map[string]any{"metadata": map[string]any{}}
	registry = "reg.example/x/"
	if out, err := execute("default", nil); err != nil || !strings.Contains(out, "image: reg.example/x/rouse-activator:"+version) {
		t.Errorf("a registry with a slash at its end: %v", err)
	}
	there, registry = nil, "reg.example/x"
	with, err := execute("default", nil, map[string]string{"name": "mine"})
	if err != nil || strings.Count(with, `imagePullSecrets: [{"name":"mine"}]`) != 2 {
		t.Errorf("Secrets for images are in %d pods (%v), want 2", strings.Count(with, "imagePullSecrets:"), err)
	}
}

// TestWhatTheChartSays: each value that can be chosen says what it is, and the notes name what there is.
func TestWhatTheChartSays(t *testing.T) {
	for _, name := range append(manifests.Overlays(), components...) {
		if meaning[name] == "" {
			t.Errorf("values.yaml does not say what %s is", name)
		}
	}
	for name := range meaning {
		if !slices.Contains(manifests.Overlays(), name) && !slices.Contains(components, name) {
			t.Errorf("there is no overlay and no component %s", name)
		}
	}
	commands, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`kn rouse [a-z]+( create)?`).FindAllString(notes, -1)
	if len(found) < 3 {
		t.Errorf("the notes name %q", found)
	}
	for _, c := range found {
		if !strings.Contains(string(commands), "### "+c+"\n") {
			t.Errorf("the notes name %s, which is no command", c)
		}
	}
	files, err := made()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.Unmarshal([]byte(files["values.yaml"]), &v); err != nil || v["registry"] != "reg.example/x" || v["overlay"] != "default" {
		t.Errorf("values.yaml: %v, %v", v, err)
	}
}

// TestHelm has the real Helm, which ROUSE_HELM names, check and render the chart.
func TestHelm(t *testing.T) {
	helm := os.Getenv("ROUSE_HELM")
	if helm == "" {
		t.Skip("ROUSE_HELM names no helm: make release-check does")
	}
	dir := filepath.Join(t.TempDir(), "rouse")
	if err := run([]string{"-o", dir, "--version", version}, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(helm, "lint", dir).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v: %s", err, out)
	}
	for _, c := range some() {
		args := []string{"template", "rouse", dir, "-n", "knative-serving", "--kube-version", "1.34.0", "--set", "registry=reg.example/x", "--set", "overlay=" + c.overlay}
		if len(c.names()) > 0 {
			args = append(args, "--set", "components={"+strings.Join(c.names(), ",")+"}")
		}
		out, err := exec.Command(helm, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm template %s %v: %v: %s", c.overlay, c.names(), err, out)
		}
		if diff := cmp.Diff(kustomized(t, c), parsed(t, string(out))); diff != "" {
			t.Fatalf("%s with %v is not what kustomize makes of it:\n%s", c.overlay, c.names(), diff)
		}
	}
	for _, wrong := range []string{"overlay=x", "components={x}", "registri=x", "registry=https://reg.example", "registry=a b", "tag=a:b", "imagePullSecrets[0].nme=x", "components={page,page}"} {
		if out, err := exec.Command(helm, "template", "rouse", dir, "--kube-version", "1.34.0", "--set", wrong).CombinedOutput(); err == nil {
			t.Errorf("--set %s is taken: %.200s", wrong, out)
		}
	}
}
