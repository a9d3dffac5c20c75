package kn

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/rouse-dev/rouse/api/control"
)

// fieldManager is our name in server-side apply.
const fieldManager = "rouse"

// object is one of our objects and its resource.
type object struct {
	*unstructured.Unstructured
	resource  schema.GroupVersionResource
	namespace string // empty: not namespaced
}

// String returns its name for progress lines and errors.
func (o object) String() string {
	if o.namespace != "" {
		return o.GetKind() + " " + o.namespace + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}

func (c *cluster) client(o object) dynamic.ResourceInterface {
	if o.namespace == "" {
		return c.dyn.Resource(o.resource)
	}
	return c.dyn.Resource(o.resource).Namespace(o.namespace)
}

// parse parses a YAML stream into objects.
func (c *cluster) parse(stream []byte) ([]object, error) {
	var out []object
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		u := &unstructured.Unstructured{}
		if err == nil {
			err = yaml.Unmarshal(doc, &u.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		resource, namespaced, err := c.resource(u.GroupVersionKind())
		switch {
		case meta.IsNoMatchError(err):
			return nil, fmt.Errorf("the cluster has no kind %s (%s), which %s wants: install what defines it, or choose another overlay", u.GetKind(), u.GetAPIVersion(), u.GetName())
		case err != nil:
			return nil, fmt.Errorf("ask the cluster for its kinds: %w", err)
		}
		o := object{Unstructured: u, resource: resource}
		if namespaced {
			o.namespace = cmp.Or(u.GetNamespace(), control.SystemNamespace)
		}
		out = append(out, o)
	}
	return out, nil
}

// try asks the cluster whether it would accept an object.
func (c *cluster) try(ctx context.Context, o object) error {
	_, err := c.client(o).Apply(ctx, o.GetName(), o.Unstructured, metav1.ApplyOptions{FieldManager: fieldManager, Force: true, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("apply %s: %w", o, err)
	}
	return nil
}
