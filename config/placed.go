package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// Other fields belong to the declaring cluster.
var placedFields = []string{"name", "image", "args", "command", "env", "envFrom", "ports", "resources"}

// Placed converts a revision with [AnnotationClusters] to the function for other clusters, with its manifest. What
// one machine could not run is an error.
func Placed(r RevisionSource) (api.Function, error) {
	var spec struct {
		timeouts
		ContainerConcurrency json.RawMessage              `json:"containerConcurrency,omitempty"`
		Containers           []map[string]json.RawMessage `json:"containers"`
	}
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return api.Function{}, fmt.Errorf("read the spec of %s/%s: %w", r.Namespace, r.Name, err)
	}
	spec.timeouts = spec.chosen()
	for _, c := range spec.Containers {
		for field := range c {
			if !slices.Contains(placedFields, field) {
				delete(c, field)
			}
		}
	}
	annotations := map[string]string{}
	for key, value := range r.Annotations {
		if strings.HasPrefix(key, "rouse.dev/") || strings.HasPrefix(key, scalingPrefix) {
			annotations[key] = value
		}
	}
	if r.Adapters != nil {
		if annotations[AnnotationAdapters] = AdapterList(*r.Adapters); len(*r.Adapters) == 0 {
			delete(annotations, AnnotationAdapters)
		}
	}
	type object map[string]any
	text, err := json.Marshal(object{
		"apiVersion": APIVersion, "kind": Kind,
		"metadata": object{"namespace": r.Namespace, "name": cmp.Or(r.Service, r.Name)},
		"spec":     object{"template": object{"metadata": object{"annotations": annotations}, "spec": spec}},
	})
	if err != nil {
		return api.Function{}, fmt.Errorf("the manifest of %s/%s: %w", r.Namespace, r.Name, err)
	}
	list, err := Parse(bytes.NewReader(text), "revision "+r.Namespace+"/"+r.Name, ".")
	if err != nil {
		return api.Function{}, err
	}
	return list[0], nil
}
