package config

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

// Manifest is a function with the YAML that declares it.
type Manifest struct {
	Function api.Function
	// YAML is independent of its location: paths relative to the file's folder are absolute.
	YAML []byte
}

// Portable is [Load] with the text of each function.
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

// whole replaces the paths in a document by the resolved ones of f.
func whole(doc *yaml.Node, f api.Function) {
	annotations := at(doc.Content[0], "spec", "template", "metadata", "annotations")
	for key, path := range map[string]string{api.AnnotationModel: f.Runtime.Model, annotationAdapterRoot: f.Runtime.AdapterRoot} {
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
			if name, value := at(e, "name"), at(e, "value"); name != nil && name.Value == api.EnvModel && value != nil {
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

// ManifestOf returns a manifest for a function made by [ForModel]: one model, with its names and environment.
func ManifestOf(f api.Function) (Manifest, error) {
	annotations := map[string]string{api.AnnotationModel: f.Runtime.Model, api.AnnotationRuntime: f.Runtime.Kind}
	if f.Model != "" && string(f.Model) != f.Name.Name() {
		annotations[api.AnnotationServedName] = string(f.Model)
	}
	for i, a := range f.Aliases {
		if i > 0 {
			annotations[annotationAliases] += ", "
		}
		annotations[annotationAliases] += string(a)
	}
	type variable struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	}
	container := struct {
		Image string     `yaml:"image"`
		Env   []variable `yaml:"env,omitempty"`
	}{Image: "dev.local/rouse-function:v1"}
	for _, kv := range f.Runtime.Env {
		name, value, _ := bytes.Cut([]byte(kv), []byte("="))
		container.Env = append(container.Env, variable{string(name), string(value)})
	}
	doc := map[string]any{
		"apiVersion": APIVersion, "kind": Kind, "metadata": map[string]string{"name": f.Name.Name()},
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec":     map[string]any{"containers": []any{container}},
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
