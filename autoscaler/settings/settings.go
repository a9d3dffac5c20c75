// Package settings prepares a Knative Serving for functions: it sets a few unset keys of Knative's ConfigMaps
// ([Settings]), and records that on the object ([AnnotationBefore]). It does not touch a cluster without Knative
// Serving, or with a version that this program was not tested with ([Check]), and never deletes anything.
//
// It undoes changes of older versions: settings that are no longer needed and, once all functions are reached without
// it, the selector of Knative's activator-service. A value that others have changed meanwhile is kept.
package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/rouse-dev/rouse/api/control"
)

// AnnotationBefore records what was changed, as JSON: see [before].
const AnnotationBefore = "rouse.dev/before"

const fieldManager = "rouse"

// Service is the Service of Knative's activator, whose selector older versions changed.
const Service = "activator-service"

// The selectors of that Service: Knative's, and the one that older versions set.
var (
	stock = map[string]string{"app": "activator"}
	ours  = map[string]string{"app": control.ActivatorName}
)

// Setting is a key that Rouse needs.
type Setting struct {
	ConfigMap string
	Key       string
	Value     string
	Why       string
}

// Settings apply to stock functions too: each allows something that Knative refuses, and none changes a function that
// uses nothing new; see docs/design/0005.
var Settings = []Setting{
	{"config-autoscaler", "allow-zero-initial-scale", "true", "a function is created without a pod, and so without a GPU"},
	{"config-defaults", "max-revision-timeout-seconds", "3600", "an answer may take longer than ten minutes"},
}

// ConfigMaps returns the ConfigMaps that may be changed, also those that only older versions changed.
func ConfigMaps() []string {
	names := []string{"config-deployment"}
	for _, s := range Settings {
		names = append(names, s.ConfigMap)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// before is the value of [AnnotationBefore]: changes by key.
type before map[string]change

type change struct {
	// Was is the previous value; nil: there was none.
	Was *string `json:"was"`
	// Set is the new value; nil: the key was removed.
	Set *string `json:"set"`
}

// undone keeps a value that was changed since.
func (b before) undone(values map[string]string) map[string]string {
	out := maps.Clone(values)
	if out == nil {
		out = map[string]string{}
	}
	for key, c := range b {
		now, there := out[key]
		if there != (c.Set != nil) || there && now != *c.Set {
			continue
		}
		if c.Was == nil {
			delete(out, key)
		} else {
			out[key] = *c.Was
		}
	}
	return out
}

// retired returns the changes that are not in [Settings].
func (b before) retired(configMap string) before {
	old := maps.Clone(b)
	for _, s := range Settings {
		if s.ConfigMap == configMap {
			delete(old, s.Key)
		}
	}
	return old
}

// remembered ignores an annotation that this program did not write.
func remembered(o metav1.Object) (b before, found bool) {
	text, found := o.GetAnnotations()[AnnotationBefore]
	if !found || json.Unmarshal([]byte(text), &b) != nil {
		return nil, found
	}
	return b, true
}

type taker struct {
	kube      kubernetes.Interface
	namespace string
}

// giveSelector reports whether it had to change the selector.
func (t taker) giveSelector(ctx context.Context) (changed bool, err error) {
	services := t.kube.CoreV1().Services(t.namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		s, err := services.Get(ctx, Service, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read Service %s/%s: %w", t.namespace, Service, err)
		}
		b, found := remembered(s)
		changed = found || maps.Equal(s.Spec.Selector, ours)
		if !changed {
			return nil
		}
		s.Spec.Selector = b.undone(s.Spec.Selector)
		if maps.Equal(s.Spec.Selector, ours) { // the previous value is lost
			s.Spec.Selector = stock
		}
		delete(s.Annotations, AnnotationBefore)
		if _, err = services.Update(ctx, s, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("change the selector of Service %s/%s: %w", t.namespace, Service, err)
		}
		return nil
	})
	return changed, err
}

// takeSettings returns what it set.
func (t taker) takeSettings(ctx context.Context) (set []Setting, err error) {
	for _, name := range ConfigMaps() {
		var one []Setting
		err2 := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) { one, err = t.takeConfigMap(ctx, name); return err })
		set, err = append(set, one...), errors.Join(err, err2)
	}
	return set, err
}

func (t taker) takeConfigMap(ctx context.Context, name string) (set []Setting, err error) {
	c, err := t.kube.CoreV1().ConfigMaps(t.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !slices.ContainsFunc(Settings, func(s Setting) bool { return s.ConfigMap == name }) {
		return nil, nil // nothing to undo
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", t.namespace, name, err)
	}
	b, _ := remembered(c)
	if b == nil {
		b = before{}
	}
	old := b.retired(name)
	c.Data = old.undone(c.Data)
	for key := range old {
		delete(b, key)
	}
	for _, s := range Settings {
		_, there := c.Data[s.Key]
		_, known := b[s.Key] // if it is missing now, it was removed on purpose
		if s.ConfigMap != name || there || known {
			continue
		}
		c.Data[s.Key], b[s.Key] = s.Value, change{nil, &s.Value}
		set = append(set, s)
	}
	if len(set) == 0 && len(old) == 0 {
		return nil, nil
	}
	delete(c.Annotations, AnnotationBefore)
	if len(b) > 0 { // else nothing of ours is left in it
		text, err := json.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("remember what was there: %w", err)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, AnnotationBefore, string(text))
	}
	if _, err := t.kube.CoreV1().ConfigMaps(t.namespace).Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return nil, fmt.Errorf("change ConfigMap %s/%s: %w", t.namespace, name, err)
	}
	return set, nil
}
