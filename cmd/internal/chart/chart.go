package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/manifests"
)

// Images in the manifests have a local registry; a template replaces the placeholder.
const (
	local       = "dev.local/"
	placeholder = "registry.invalid/"
)

var programs = []string{"rouse-activator", "rouse-autoscaler", "rouse-function"}

// components can be added to any overlay except the agent's, which contains one.
var components = slices.DeleteFunc(manifests.Components(), func(name string) bool { return name == "agent" })

func chart(version, registry string) (map[string]string, error) {
	templates, err := objects()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"Chart.yaml": fmt.Sprintf(`apiVersion: v2
name: rouse
description: Serverless language models on Knative, scaled to zero, that share GPUs
type: application
version: %s
appVersion: %s
kubeVersion: ">= 1.30.0-0"
home: https://github.com/rouse-dev/rouse
sources: [https://github.com/rouse-dev/rouse]
keywords: [llm, serverless, scale-to-zero, gpu, knative, vllm]
`, strings.TrimPrefix(version, "v"), version),
		"values.yaml":          fmt.Sprintf(values, registry, described(manifests.Overlays()), described(components)),
		"values.schema.json":   schema(),
		"templates/rouse.yaml": templates,
		"templates/NOTES.txt":  notes,
	}, nil
}

const values = `# Where the images rouse-activator, rouse-autoscaler and rouse-function lie, and which. An empty tag is the chart's own version; one that
# looks like a number stands in quotes.
registry: %s
tag: ""
# Names of Secrets in knative-serving with which the images are pulled, as [{name: mine}].
imagePullSecrets: []
# What the cluster is, one of:
%soverlay: default
# What is added, any of:
%scomponents: []
`

var meaning = map[string]string{
	"agent":        "the cluster serves front doors elsewhere too; it takes no components",
	"default":      "functions keep the GPU of their pod while they sleep",
	"dev":          "one of each, small: for one's own machine",
	"dual-pods":    "GPUs that one pod has alone are given back while a function sleeps",
	"time-slicing": "as default, with the configuration by which NVIDIA's device plugin shares GPUs",
	"alerts":       "rules for the Prometheus operator, each with a runbook",
	"any-image":    "images that have no function in them are given one",
	"dcgm":         "what NVIDIA's DCGM exporter says of GPUs' memory counts",
	"front":        "agents of clusters elsewhere come to the front door",
	"monitoring":   "the Prometheus operator reads metrics; a dashboard for Grafana",
	"page":         "the page, for people who sign in by OpenID Connect",
	"picker":       "Rouse picks endpoints for gateways of the Gateway API",
	"relay":        "replica counts of another autoscaler are carried out",
	"store":        "files, batches and responses stay on a volume",
	"traces":       "wakes and requests are exported by OTLP",
}

func described(all []string) string {
	var b strings.Builder
	for _, name := range all {
		fmt.Fprintf(&b, "#   %-13s %s\n", name, meaning[name])
	}
	return b.String()
}

const notes = `Rouse {{ .Chart.AppVersion }} is installed beside Knative Serving in knative-serving, whatever the release's namespace is: there is one in a cluster.

  kn rouse check                   what there is, and what is missing
  kn rouse keys create ME          a key for a client: without one, all requests are refused
  kn rouse create NAME --model REF a function, by the command of kn that it prints
`

// once refuses a second release: objects have fixed names in one namespace. Without lookup, as in helm template, it
// finds nothing.
const once = `{{- with lookup "apps/v1" "Deployment" "knative-serving" "rouse-autoscaler" }}
{{- $by := get (default (dict) .metadata.annotations) "meta.helm.sh/release-name" }}
{{- $in := get (default (dict) .metadata.annotations) "meta.helm.sh/release-namespace" }}
{{- if and $by (or (ne $by $.Release.Name) (ne $in $.Release.Namespace)) }}
{{- fail (printf "this cluster has Rouse already, as the release %s in the namespace %s: there is one in a cluster; upgrade that one, or uninstall it first" $by $in) }}
{{- end }}
{{- end }}
`

// schema makes Helm refuse invalid values.
func schema() string {
	quoted := func(all []string) string { return `"` + strings.Join(all, `", "`) + `"` }
	return fmt.Sprintf(`{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "global": {"type": "object"},
    "registry": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:/-]*$", "not": {"pattern": "://"}},
    "tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"},
    "imagePullSecrets": {"type": "array", "items": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {"name": {"type": "string", "minLength": 1}}}},
    "overlay": {"enum": [%s]},
    "components": {"type": "array", "uniqueItems": true, "items": {"enum": [%s]}}
  }
}
`, quoted(manifests.Overlays()), quoted(components))
}

// alone are the components that only add objects, which nothing else changes: each that is rendered with others doubles
// the work.
var alone = []string{"alerts", "any-image", "monitoring", "page", "relay"}

// choice is an overlay and a set of components.
type choice struct {
	overlay string
	has     map[string]bool
}

// all returns the choices that show all forms of all objects.
func all() (list []choice) {
	for _, overlay := range manifests.Overlays() {
		for set := range 1 << len(components) {
			c := choice{overlay, map[string]bool{}}
			added := 0
			for k, name := range components {
				if c.has[name] = set>>k&1 == 1; c.has[name] && slices.Contains(alone, name) {
					added++
				}
			}
			if c.fits() && (added == 0 || len(c.names()) == 1) {
				list = append(list, c)
			}
		}
	}
	return list
}

// An agent takes no components.
func (c choice) fits() bool { return c.overlay != "agent" || len(c.names()) == 0 }

func (c choice) names() (names []string) {
	for _, name := range components {
		if c.has[name] {
			names = append(names, name)
		}
	}
	return names
}

// An object has texts by choice; empty: not present.
type object []string

// objects returns templates of every object in all its forms.
func objects() (string, error) {
	choices := all()
	images := map[string]string{}
	for _, name := range programs {
		images[local+name] = placeholder + name + ":tag"
	}
	var list []object
	byID := map[string]object{}
	for k, c := range choices {
		rendered, err := manifests.Render(c.overlay, images, c.names()...)
		if err != nil {
			return "", fmt.Errorf("the overlay %s with %v: %w", c.overlay, c.names(), err)
		}
		for text := range strings.SplitSeq(string(rendered), "\n---\n") {
			id, err := identity(text)
			if err != nil {
				return "", err
			}
			if byID[id] == nil {
				byID[id] = make(object, len(choices))
				list = append(list, byID[id])
			}
			byID[id][k] = strings.TrimSpace(text)
		}
	}
	var out strings.Builder
	out.WriteString("{{- /* Made from the manifests by cmd/internal/chart. */ -}}\n")
	out.WriteString(once)
	out.WriteString(`{{- if and (eq .Values.overlay "agent") .Values.components }}{{ fail "the overlay agent takes no components" }}{{ end }}` + "\n")
	for _, o := range list {
		o.write(&out, choices)
	}
	return out.String(), nil
}

func identity(text string) (string, error) {
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		return "", fmt.Errorf("read an object: %w", err)
	}
	return strings.Join([]string{o.APIVersion, o.Kind, o.Metadata.Namespace, o.Metadata.Name}, " "), nil
}

// write writes each form of an object once, under the conditions that matter.
func (o object) write(out *strings.Builder, choices []choice) {
	overlay, which := o.depends(choices)
	written := map[string]bool{"": true}
	for _, text := range o {
		if written[text] {
			continue
		}
		written[text] = true
		when := o.conditions(text, choices, overlay, which)
		if when == "" {
			fmt.Fprintf(out, "---\n%s\n", templated(text))
			continue
		}
		fmt.Fprintf(out, "{{- if %s }}\n---\n%s\n{{- end }}\n", when, templated(text))
	}
}

// depends reports whether the object depends on the overlay, and on which components.
func (o object) depends(choices []choice) (overlay bool, which []string) {
	differs := func(same func(a, b choice) bool) bool {
		for i, a := range choices {
			for j, b := range choices[:i] {
				if o[i] != o[j] && same(a, b) {
					return true
				}
			}
		}
		return false
	}
	overlay = differs(func(a, b choice) bool { return slices.Equal(a.names(), b.names()) })
	for _, name := range components {
		if differs(func(a, b choice) bool {
			return a.overlay == b.overlay && !slices.ContainsFunc(components, func(other string) bool { return (a.has[other] != b.has[other]) != (other == name) })
		}) {
			which = append(which, name)
		}
	}
	return overlay, which
}

// conditions returns when an object has this form; empty: always.
func (o object) conditions(text string, choices []choice, overlay bool, which []string) string {
	if !overlay && len(which) == 0 {
		return ""
	}
	overlays := map[string][]string{} // by the condition of the components
	var order []string
	for k, c := range choices {
		if o[k] != text {
			continue
		}
		var components []string
		for _, name := range which {
			has := fmt.Sprintf("(has %q $.Values.components)", name)
			if !c.has[name] {
				has = "(not " + has + ")"
			}
			components = append(components, has)
		}
		key := strings.Join(components, " ")
		if overlays[key] == nil {
			order = append(order, key)
		}
		if !slices.Contains(overlays[key], c.overlay) {
			overlays[key] = append(overlays[key], c.overlay)
		}
	}
	var all []string
	for _, key := range order {
		if overlay {
			key = strings.TrimSpace(fmt.Sprintf("(has $.Values.overlay (list %s)) %s", `"`+strings.Join(overlays[key], `" "`)+`"`, key))
		}
		all = append(all, "(and "+key+")")
	}
	if len(all) == 1 {
		return all[0]
	}
	return "or " + strings.Join(all, " ")
}

// templated escapes the text's own braces, and takes images from the values.
func templated(text string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`)
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		for _, name := range programs {
			line = strings.ReplaceAll(line, placeholder+name+":tag", "{{ $.Values.registry | trimSuffix \"/\" }}/"+name+":{{ $.Values.tag | default $.Chart.AppVersion }}")
		}
		out = append(out, line)
		if trimmed := strings.TrimLeft(line, " "); strings.HasPrefix(trimmed, "serviceAccountName: ") {
			indent := line[:len(line)-len(trimmed)]
			out = append(out, indent+"{{- with $.Values.imagePullSecrets }}", indent+"imagePullSecrets: {{ toJson . }}", indent+"{{- end }}")
		}
	}
	return strings.Join(out, "\n")
}
