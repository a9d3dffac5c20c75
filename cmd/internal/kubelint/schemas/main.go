// Command schemas writes the JSON schemas with which kubeconform checks manifests: of Kubernetes' own kinds from its
// OpenAPI description, of custom resources from their definitions.
//
//	schemas FOLDER SWAGGER.JSON [CRD.YAML …]
//
// Each kind gets a file GROUP-VERSION-KIND.json that rejects unknown fields.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want FOLDER SWAGGER.JSON [CRD.YAML …]")
	}
	folder := args[0]
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := builtin(folder, args[1]); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	for _, path := range args[2:] {
		if err := custom(folder, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// definitionsFile has all types of Kubernetes.
const definitionsFile = "definitions.json"

func builtin(folder, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var swagger struct {
		Definitions map[string]map[string]any
	}
	if err := json.Unmarshal(raw, &swagger); err != nil {
		return err
	}
	kinds := 0
	for name, d := range swagger.Definitions {
		if strings.HasSuffix(name, ".IntOrString") || strings.HasSuffix(name, ".Quantity") {
			swagger.Definitions[name] = map[string]any{"type": []string{"string", "number"}}
			continue
		}
		strict(d)
		list, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, k := range list {
			gvk, _ := k.(map[string]any)
			ref := map[string]any{"$ref": definitionsFile + "#/definitions/" + name}
			if err := write(folder, fmt.Sprint(gvk["group"]), fmt.Sprint(gvk["version"]), fmt.Sprint(gvk["kind"]), ref); err != nil {
				return err
			}
			kinds++
		}
	}
	if kinds == 0 {
		return fmt.Errorf("it has no kinds")
	}
	raw, _ = json.Marshal(map[string]any{"definitions": swagger.Definitions}) // it was read from JSON
	return os.WriteFile(filepath.Join(folder, definitionsFile), raw, 0o644)
}

func custom(folder, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct {
					V3 map[string]any `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		return err
	}
	if len(crd.Spec.Versions) == 0 {
		return fmt.Errorf("it defines no resource")
	}
	for _, v := range crd.Spec.Versions {
		strict(v.Schema.V3)
		if properties, is := v.Schema.V3["properties"].(map[string]any); is {
			properties["metadata"] = map[string]any{"type": "object"}
			properties["apiVersion"], properties["kind"] = map[string]any{"type": "string"}, map[string]any{"type": "string"}
		}
		if err := write(folder, crd.Spec.Group, v.Name, crd.Spec.Names.Kind, v.Schema.V3); err != nil {
			return err
		}
	}
	return nil
}

// strict rejects unknown fields in a schema, unless it permits others.
func strict(schema any) {
	n, is := schema.(map[string]any)
	if !is {
		return
	}
	if n["x-kubernetes-int-or-string"] == true || n["format"] == "int-or-string" {
		n["type"] = []string{"string", "number"}
		delete(n, "anyOf")
	}
	delete(n, "format")
	fields, named := n["properties"].(map[string]any)
	for _, f := range fields {
		strict(f)
	}
	if _, said := n["additionalProperties"]; named && !said && n["x-kubernetes-preserve-unknown-fields"] != true {
		n["additionalProperties"] = false
	}
	strict(n["items"])
	strict(n["additionalProperties"])
}

func write(folder, group, version, kind string, schema any) error {
	raw, _ := json.Marshal(schema)
	if group == "" { // as kubeconform names the core group
		group = version
	}
	name := strings.ToLower(fmt.Sprintf("%s-%s-%s.json", group, version, kind))
	return os.WriteFile(filepath.Join(folder, name), raw, 0o644)
}
