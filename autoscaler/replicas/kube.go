package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"knative.dev/pkg/kmap"
	"knative.dev/serving/pkg/apis/autoscaling"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

const manager = "rouse-relay"

// Cluster is the [Setter] of a cluster.
type Cluster struct {
	Kube    kubernetes.Interface
	Serving servingclient.Interface
	// Without Functions, revisions of Rouse's class can't be scaled.
	Functions *Functions
}

// Set implements [Setter].
func (c *Cluster) Set(ctx context.Context, t Target, n int, dry bool) (Outcome, error) {
	switch t.Kind {
	case Deployment, ReplicaSet, StatefulSet:
		return c.setScale(ctx, t, n, dry)
	case Revision:
		r, err := c.Serving.ServingV1().Revisions(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return Outcome{}, explain(t, err)
		}
		return c.setRevision(ctx, r, n, dry)
	case Service:
		return c.setService(ctx, t, n, dry)
	}
	return Outcome{}, fmt.Errorf("scale %s: there is no such kind", t)
}

type scaler struct {
	get   func(ctx context.Context, name string, o metav1.GetOptions) (*autoscalingv1.Scale, error)
	patch func(ctx context.Context, name string, patch []byte) error
}

func (c *Cluster) scaler(t Target) scaler {
	apps := c.Kube.AppsV1()
	switch t.Kind {
	case ReplicaSet:
		client := apps.ReplicaSets(t.Namespace)
		return scalerOf(client.GetScale, client.Patch)
	case StatefulSet:
		client := apps.StatefulSets(t.Namespace)
		return scalerOf(client.GetScale, client.Patch)
	}
	client := apps.Deployments(t.Namespace)
	return scalerOf(client.GetScale, client.Patch)
}

func scalerOf[T any](get func(context.Context, string, metav1.GetOptions) (*autoscalingv1.Scale, error),
	patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)) scaler {
	return scaler{get, func(ctx context.Context, name string, change []byte) error {
		_, err := patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{FieldManager: manager}, "scale")
		return err
	}}
}

func (c *Cluster) setScale(ctx context.Context, t Target, n int, dry bool) (Outcome, error) {
	s := c.scaler(t)
	now, err := s.get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return Outcome{}, explain(t, err)
	}
	o := Outcome{Was: int(now.Spec.Replicas), Changed: int(now.Spec.Replicas) != n}
	if !o.Changed || dry {
		return o, nil
	}
	if err := s.patch(ctx, t.Name, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)); err != nil {
		return Outcome{}, explain(t, err)
	}
	return o, nil
}

func (c *Cluster) setService(ctx context.Context, t Target, n int, dry bool) (Outcome, error) {
	s, err := c.Serving.ServingV1().Services(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil {
		return Outcome{}, explain(t, err)
	}
	name := s.Status.LatestReadyRevisionName
	if name == "" {
		return Outcome{}, fmt.Errorf("scale %s: no revision of it was ever ready", t)
	}
	r, err := c.Serving.ServingV1().Revisions(t.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Outcome{}, explain(t, err)
	}
	o, err := c.setRevision(ctx, r, n, dry)
	o.What = "revision " + name
	return o, err
}

// setRevision scales a revision: 1. through Rouse's autoscaler; 2. of another class by its annotations.
func (c *Cluster) setRevision(ctx context.Context, r *servingv1.Revision, n int, dry bool) (Outcome, error) {
	t := Target{Revision, r.Namespace, r.Name}
	if r.Annotations[autoscaling.ClassAnnotationKey] == config.Class { // 1.
		if c.Functions == nil {
			return Outcome{}, fmt.Errorf("scale %s: it is a function of Rouse, and the relay has no address of Rouse's autoscaler: set --autoscaler", t)
		}
		return c.Functions.Set(ctx, api.NewFunctionName(r.Namespace, r.Name), n, dry)
	}
	least, most := autoscaling.MinScaleAnnotation, autoscaling.MaxScaleAnnotation
	want := map[string]string{least.Key(): strconv.Itoa(n), most.Key(): strconv.Itoa(max(1, n))} // 2. a max-scale of 0 would mean no limit
	o := Outcome{}
	if v, err := strconv.Atoi(least.Value(r.Annotations)); err == nil {
		o.Was = v
	}
	patch := map[string]any{}
	for _, keys := range []kmap.KeyPriority{least, most} {
		key := keys.Key()
		if keys.Value(r.Annotations) == want[key] {
			continue
		}
		o.Changed = true
		for _, other := range keys { // an older name of the same annotation
			if _, there := r.Annotations[other]; there {
				patch[other] = nil
			}
		}
		patch[key] = want[key]
	}
	if !o.Changed || dry {
		return o, nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": patch}})
	if err != nil {
		return Outcome{}, fmt.Errorf("scale %s: %w", t, err)
	}
	if _, err := c.Serving.ServingV1().Revisions(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: manager}); err != nil {
		return Outcome{}, explain(t, err)
	}
	return o, nil
}

func explain(t Target, err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("scale %s: the relay's account may not: bind the ClusterRole rouse-relay to it in this namespace: %w", t, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("scale %s: there is none: %w", t, err)
	}
	return fmt.Errorf("scale %s: %w", t, err)
}
