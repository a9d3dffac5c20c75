package config

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

// Manifest is a function with the YAML that declares it.
type Manifest struct {
	Function api.Function
	// Paths are absolute.
	YAML []byte
}

// Portable is [Load] with texts.
func Portable(path string) ([]Manifest, error) {
	functions, docs, err := load(path)
	if err != nil {
		return nil, err
	}
	var all []Manifest
	for i, f := range functions {
		whole(docs[i], f)
		text, err := yaml.Marshal(docs[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Origin, err)
		}
		all = append(all, Manifest{f, text})
	}
	return all, nil
}

func whole(doc *yaml.Node, f api.Function) {
	annotations := at(doc.Content[0], "spec", "template", "metadata", "annotations")
	for key, path := range map[string]string{AnnotationModel: f.Runtime.Model, annotationAdapterRoot: f.Runtime.AdapterRoot} {
		if n := at(annotations, key); n != nil && path != "" {
			n.Value = path
		}
	}
	containers := at(doc.Content[0], "spec", "template", "spec", "containers")
	if containers == nil {
		return
	}
	for _, c := range containers.Content {
		env := at(c, "env")
		if env == nil {
			continue
		}
		for _, e := range env.Content {
			if name, value := at(e, "name"), at(e, "value"); name != nil && name.Value == EnvModel && value != nil {
				value.Value = f.Runtime.Model
			}
		}
	}
}

func at(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		var found *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				found = n.Content[i+1]
			}
		}
		n = found
	}
	return n
}

// ManifestOf returns a manifest of what differs from the defaults, with one container.
func ManifestOf(f api.Function) (Manifest, error) {
	usual := api.Function{Name: f.Name, Runtime: f.Runtime, MinScale: f.MinScale, ActivationScale: f.ActivationScale, SleepAfter: DefaultSleepAfter, UnloadAfter: DefaultUnloadAfter}.WithDefaults()
	usual.Runtime, usual.MinScale, usual.ActivationScale = api.Runtime{}, 0, 0
	usual.PassCredentials = f.Runtime.Kind == api.RuntimeHTTP
	annotations := map[string]string{}
	defaults := Keys(&usual)
	for i, k := range Keys(&f) {
		if value := k.text(); value != defaults[i].text() {
			annotations[k.Name] = value
		}
	}
	container := map[string]any{"image": "dev.local/rouse-function:v1"}
	args := f.Runtime.Args
	if len(f.Runtime.Command) > 0 {
		container["command"] = f.Runtime.Command
	} else if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		args = append([]string{"--"}, args...) // see asCommandLine
	}
	if len(args) > 0 {
		container["args"] = args
	}
	if f.Memory.Devices > 0 {
		container["resources"] = map[string]any{"limits": map[string]int{GPUResources()[0]: f.Memory.Devices}}
	}
	var env []map[string]string
	for _, kv := range f.Runtime.Env {
		name, value, _ := strings.Cut(kv, "=")
		env = append(env, map[string]string{"name": name, "value": value})
	}
	if len(env) > 0 {
		container["env"] = env
	}
	spec := map[string]any{"containers": []any{container}}
	if f.Concurrency != usual.Concurrency {
		spec["containerConcurrency"] = f.Concurrency
	}
	metadata := map[string]string{"name": f.Name.Name()}
	if space := f.Name.Namespace(); space != api.DefaultNamespace {
		metadata["namespace"] = space
	}
	doc := map[string]any{
		"apiVersion": APIVersion, "kind": Kind, "metadata": metadata,
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec":     spec,
		}},
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return Manifest{}, fmt.Errorf("write the manifest of %s: %w", f.Name, err)
	}
	_ = enc.Close() // writes to memory
	return Manifest{f, b.Bytes()}, nil
}
