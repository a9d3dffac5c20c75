// Package config parses the manifests in which users declare functions: Knative Services (serving.knative.dev/v1).
// It is strict: an unknown field, an unknown key of Rouse or of autoscalers, and a wrong type are errors with file
// and line. In a cluster the keys come from a Knative [Revision].
//
// All functions are safe for concurrent use.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
)

// Kind and API version of a manifest.
const (
	Kind       = "Service"
	APIVersion = "serving.knative.dev/v1"
)

// Load reads the functions of a file; "-" is standard input. Model paths are relative to its folder.
func Load(path string) ([]api.Function, error) {
	functions, _, err := load(path)
	return functions, err
}

func load(path string) ([]api.Function, []*yaml.Node, error) {
	var raw []byte
	var err error
	name, dir := path, filepath.Dir(path)
	if path == "-" {
		name, dir = "standard input", "."
		raw, err = disk.Text(os.Stdin, name)
	} else {
		raw, err = disk.ReadText(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the manifest: %w", err)
	}
	return parse(raw, name, dir)
}

// Here parses a function that was declared for clusters as if this one had declared it. Errors contain name; paths
// are relative to dir.
func Here(manifest, name, dir string) (api.Function, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(manifest))
	if err := dec.Decode(&doc); err != nil || len(doc.Content) == 0 {
		return api.Function{}, fmt.Errorf("%s: not YAML: %w", name, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	if dec.Decode(&yaml.Node{}) != io.EOF {
		return api.Function{}, fmt.Errorf("%s: more than one document", name)
	}
	f, err := parseService(doc.Content[0], source{name, dir})
	if err != nil {
		return f, err
	}
	f.Clusters, f.RemoveAfter, f.Regions, f.Manifest = "", 0, nil, ""
	f.Runtime.Model = resolveModel(f.Runtime.Kind, f.Runtime.Model, dir)
	f.Runtime.AdapterRoot = fromFolder(f.Runtime.AdapterRoot, dir)
	return f, nil
}

// Parse parses a YAML or JSON stream. Errors and Origin contain name; paths are relative to dir. Duplicate
// functions and model names are errors.
func Parse(r io.Reader, name, dir string) ([]api.Function, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	functions, _, err := parse(raw, name, dir)
	return functions, err
}

func parse(raw []byte, name, dir string) (functions []api.Function, docs []*yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, notYAML(name, err)
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		f, err := parseService(doc.Content[0], source{name, dir})
		if err != nil {
			return nil, nil, err
		}
		functions, docs = append(functions, f), append(docs, &doc)
	}
	if len(functions) == 0 {
		return nil, nil, fmt.Errorf("%s: no %s of %s in it", name, Kind, APIVersion)
	}
	if err := CheckUnique(functions); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return functions, docs, nil
}

// The line comes after the name.
func notYAML(name string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if line, rest, found := strings.Cut(strings.TrimPrefix(text, "line "), ": "); found && !strings.HasPrefix(text, line) {
		return fmt.Errorf("%s:%s: not YAML: %s", name, line, rest)
	}
	return fmt.Errorf("%s: not YAML: %s", name, text)
}

// CheckUnique refuses a function's name, or within a namespace a model's, that is used twice. Variants may share
// their model's.
func CheckUnique(functions []api.Function) error {
	type name struct {
		namespace string
		model     api.ModelName
	}
	origins := map[api.FunctionName]string{}
	models := map[name]api.FunctionName{}
	for _, f := range functions {
		if other, found := origins[f.Name]; found {
			return fmt.Errorf("the function %s is declared twice, in %s and in %s: give one of them another name", f.Name, other, f.Origin)
		}
		origins[f.Name] = f.Origin
		for _, m := range f.Names() {
			key := name{f.Name.Namespace(), m}
			if other, found := models[key]; found {
				return fmt.Errorf("the model name %q is used by %s and by %s: give one of them another name (%s, %s)", m, other, f.Name, AnnotationServedName, annotationAliases)
			}
			models[key] = f.Name
		}
	}
	for _, f := range functions {
		if other, found := models[name{f.Name.Namespace(), f.VariantOf}]; found {
			return fmt.Errorf("%s is a variant of %q, which is the name of %s: give that one another name (%s), and make it a variant too", f.Name, f.VariantOf, other, AnnotationServedName)
		}
	}
	return nil
}

type source struct{ name, dir string }

func (s source) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", s.name, n.Line, fmt.Sprintf(format, args...))
}

type service struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name        string    `yaml:"name"`
		Namespace   string    `yaml:"namespace"`
		Annotations yaml.Node `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		Template struct {
			Metadata struct {
				Annotations yaml.Node `yaml:"annotations"`
			} `yaml:"metadata"`
			Spec struct {
				ContainerConcurrency int         `yaml:"containerConcurrency"`
				Timeouts             timeouts    `yaml:",inline"`
				Containers           []container `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

// In seconds; 0: none.
type timeouts struct {
	All   int `yaml:"timeoutSeconds" json:"timeoutSeconds,omitempty"`
	First int `yaml:"responseStartTimeoutSeconds" json:"responseStartTimeoutSeconds,omitempty"`
	Idle  int `yaml:"idleTimeoutSeconds" json:"idleTimeoutSeconds,omitempty"`
}

// Knative writes it into a revision without these timeouts (config-defaults).
const knativesTimeout = 300

// Knative's defaults would cut every longer generation.
func (t timeouts) chosen() timeouts {
	for _, p := range []*int{&t.All, &t.First} {
		if *p == knativesTimeout {
			*p = 0
		}
	}
	return t
}

// As in Knative, idleTimeoutSeconds applies before the first byte too.
func (t timeouts) bound(f *api.Function) {
	if t.Idle > 0 && (t.First == 0 || t.Idle < t.First) {
		t.First = t.Idle
	}
	f.RequestTimeout, f.FirstByteTimeout, f.IdleTimeout = seconds(t.All), seconds(t.First), seconds(t.Idle)
}

type container struct {
	Image   string   `yaml:"image"`
	Ports   []any    `yaml:"ports"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Env     []struct {
		Name      string    `yaml:"name"`
		Value     string    `yaml:"value"`
		ValueFrom yaml.Node `yaml:"valueFrom"`
	} `yaml:"env"`
	Resources resources `yaml:"resources"`
}

func parseService(n *yaml.Node, src source) (api.Function, error) {
	var s service
	if err := n.Decode(&s); err != nil {
		return api.Function{}, fmt.Errorf("%s: %s", src.name, strings.ReplaceAll(api.Explain(err).Error(), "\n", " "))
	}
	if s.Kind == "" && at(n, "models") != nil {
		return api.Function{}, src.errorf(n, "it looks like llama-swap's configuration: `rouse import llama-swap` makes a manifest of it")
	}
	if s.Kind != Kind || s.APIVersion != APIVersion {
		return api.Function{}, src.errorf(n, "found kind %q of apiVersion %q, want kind %s of %s", s.Kind, s.APIVersion, Kind, APIVersion)
	}
	if err := checkFields(n, serviceFields, "", src); err != nil {
		return api.Function{}, err
	}
	name := api.NewFunctionName(s.Metadata.Namespace, s.Metadata.Name)
	if err := cmp.Or(api.CheckName(s.Metadata.Name), name.Check()); err != nil { // a slash belongs to neither
		return api.Function{}, src.errorf(n, "metadata.%v", err)
	}
	spec := s.Spec.Template.Spec
	own, err := ownContainer(spec.Containers, func(c container) int { return len(c.Ports) })
	if err != nil {
		return api.Function{}, src.errorf(n, "spec.template.%v", err)
	}
	f := api.Function{
		Name:        name,
		Concurrency: spec.ContainerConcurrency,
		SleepAfter:  DefaultSleepAfter,
		UnloadAfter: DefaultUnloadAfter,
		Origin:      src.name,
	}
	spec.Timeouts.bound(&f)
	if err := fromContainer(&f, own, n, src); err != nil {
		return api.Function{}, err
	}
	if err := fromAnnotations(&f, &s.Spec.Template.Metadata.Annotations, src); err != nil {
		return api.Function{}, err
	}
	if err := fromServiceAnnotations(&f, &s.Metadata.Annotations, src); err != nil {
		return api.Function{}, err
	}
	asCommandLine(&f.Runtime)
	if len(spec.Containers) > 1 && f.Runtime.Endpoint == "" {
		return api.Function{}, src.errorf(n, "the function %s has a sidecar container: say where its runtime listens with the annotation %s", f.Name.Name(), AnnotationEndpoint)
	}
	if err := checkRuntime(f, n, src); err != nil {
		return api.Function{}, err
	}
	if err := checkTogether(&f); err != nil {
		return api.Function{}, src.errorf(n, "the function %s: %v", f.Name.Name(), err)
	}
	if f.Clusters != "" { // [Here] parses it again where it is created
		text, err := yaml.Marshal(n)
		if err != nil {
			return api.Function{}, src.errorf(n, "the function %s: %v", f.Name.Name(), err)
		}
		f.Manifest = string(text)
		return f.WithDefaults(), nil
	}
	f.Runtime.Model = resolveModel(f.Runtime.Kind, f.Runtime.Model, src.dir)
	f.Runtime.AdapterRoot = fromFolder(f.Runtime.AdapterRoot, src.dir)
	return f.WithDefaults(), nil
}

// As Knative requires, ownContainer is the only one, or the only one with a port.
func ownContainer[C any](all []C, ports func(C) int) (own C, err error) {
	if len(all) == 1 {
		return all[0], nil
	}
	found := 0
	for _, c := range all {
		if ports(c) > 0 {
			own = c
			found++
		}
	}
	if found != 1 {
		return *new(C), fmt.Errorf("spec.containers has %d entries of which %d have ports: want exactly one container, or exactly one with ports", len(all), found)
	}
	return own, nil
}

func fromContainer(f *api.Function, c container, n *yaml.Node, src source) error {
	f.Runtime.Command, f.Runtime.Args = c.Command, c.Args
	if len(c.Command) > 0 {
		f.Runtime.Kind = api.RuntimeCommand
	}
	for _, e := range c.Env {
		switch {
		case !e.ValueFrom.IsZero():
			return src.errorf(&e.ValueFrom, "the environment variable %s takes its value from the cluster (valueFrom), which one machine does not have: give it a value", e.Name)
		case e.Name == "" || strings.ContainsAny(e.Name, "=\x00"):
			return src.errorf(n, "an environment variable is named %q: want a name without '='", e.Name)
		case e.Name == EnvRuntime:
			f.Runtime.Kind = e.Value
		case e.Name == EnvModel:
			f.Runtime.Model = e.Value
		default:
			f.Runtime.Env = append(f.Runtime.Env, e.Name+"="+e.Value)
		}
	}
	for _, list := range []map[string]quantity{c.Resources.Requests, c.Resources.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if err := checkResource(name); err != nil {
				return src.errorf(n, "%v", err)
			}
		}
	}
	if err := c.Resources.add(&f.Memory, GPUResources()); err != nil {
		return src.errorf(n, "%v", err)
	}
	return nil
}

// After "--" come the function program's own arguments, as a cluster needs them. A container with a command keeps
// its args.
func asCommandLine(rt *api.Runtime) {
	if len(rt.Args) == 0 || rt.Args[0] != "--" {
		return
	}
	words := rt.Args[1:]
	if rt.Args = words; len(rt.Command) == 0 {
		*rt = rt.Behind(words)
	}
}

func checkRuntime(f api.Function, n *yaml.Node, src source) error {
	switch f.Runtime.Kind {
	case api.RuntimeCommand, api.RuntimeHTTP:
		if len(f.Runtime.Command) == 0 && f.Runtime.Endpoint == "" {
			return src.errorf(n, "the function %s has the runtime %q and no command: set the container's command", f.Name.Name(), f.Runtime.Kind)
		}
	case "", api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeOllama, api.RuntimeLlamaCpp, api.RuntimeRayServe:
		if f.Runtime.Model == "" && f.Runtime.Endpoint == "" {
			return src.errorf(n, "the function %s names no model: set the annotation %s or the environment variable %s", f.Name.Name(), AnnotationModel, EnvModel)
		}
	default:
		return src.errorf(n, "the function %s has the runtime %q, want one of %s", f.Name.Name(), f.Runtime.Kind, strings.Join(api.RuntimeKinds, ", "))
	}
	if (f.Runtime.Kind == "" || f.Runtime.Kind == api.RuntimeEngine) && f.Runtime.Endpoint != "" {
		return src.errorf(n, "the function %s has %s and the runtime %q, which an instance starts itself: name the runtime that listens there with the annotation %s", f.Name.Name(), AnnotationEndpoint, api.RuntimeEngine, AnnotationRuntime)
	}
	if f.Concurrency < 0 || min(f.RequestTimeout, f.FirstByteTimeout, f.IdleTimeout) < 0 {
		return src.errorf(n, "the function %s: containerConcurrency, timeoutSeconds, responseStartTimeoutSeconds and idleTimeoutSeconds can't be negative", f.Name.Name())
	}
	for _, err := range boundScales(&f) {
		return src.errorf(n, "the function %s: %v", f.Name.Name(), err)
	}
	return nil
}
