package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/api/control"
)

// AnnotationTakeOver on the autoscaler's own Deployment, with the value [Off], says that nothing
// is to be taken over and what was is to be given back. [GiveBack] sets it first, so that
// a running autoscaler does not take again; [Allow] takes it away.
const (
	AnnotationTakeOver = "rouse.dev/take-over"
	Off                = "off"
)

// GiveBack restores all that take-overs have changed in the system namespace, keeps a
// running autoscaler from taking it again ([AnnotationTakeOver]), and returns a
// sentence for each thing that it did. It goes on after an error, does
// nothing where nothing was taken over, and may be repeated.
func GiveBack(ctx context.Context, kube kubernetes.Interface) (done []string, err error) {
	t := taker{kube, control.SystemNamespace}
	off := Off
	err = t.mark(ctx, &off)
	done, err2 := t.giveBack(ctx)
	return done, errors.Join(err, err2)
}

// Allow lets a running autoscaler take over again after a [GiveBack].
func Allow(ctx context.Context, kube kubernetes.Interface) error {
	return taker{kube, control.SystemNamespace}.mark(ctx, nil)
}

func (t taker) giveBack(ctx context.Context) (done []string, err error) {
	changed, err := t.giveSelector(ctx)
	if apierrors.IsNotFound(err) {
		err = nil // Knative itself is gone
	} else if changed && err == nil {
		done = append(done, fmt.Sprintf("Service %s points at Knative's own activator again", Service))
	}
	restored, err2 := t.giveSettings(ctx)
	for _, name := range restored {
		done = append(done, fmt.Sprintf("ConfigMap %s is as it was", name))
	}
	return done, errors.Join(err, err2)
}

// errOff says that people want nothing taken over.
var errOff = &Problem{"TakeOverOff", fmt.Sprintf("nothing of Knative's is taken over, because the Deployment %s has the annotation %s: %s; remove it to change that",
	control.AutoscalerName, AnnotationTakeOver, Off)}

// allowed returns errOff where nothing may be taken over. It is asked between the reading of an object and a patch that
// fails if the object has changed: GiveBack, which forbids first and then restores, is never overtaken.
func (t taker) allowed(ctx context.Context) error {
	d, err := t.kube.AppsV1().Deployments(t.namespace).Get(ctx, control.AutoscalerName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // it runs outside of the cluster
		return nil
	case err != nil:
		return fmt.Errorf("read Deployment %s/%s: %w", t.namespace, control.AutoscalerName, err)
	case d.Annotations[AnnotationTakeOver] == Off:
		return errOff
	}
	return nil
}

func always(context.Context) error { return nil }

// mark sets or, with nil, removes [AnnotationTakeOver]. A Deployment that is not there needs none.
func (t taker) mark(ctx context.Context, value *string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{AnnotationTakeOver: value}}})
	if err != nil {
		return fmt.Errorf("make a patch: %w", err)
	}
	_, err = t.kube.AppsV1().Deployments(t.namespace).Patch(ctx, control.AutoscalerName, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotate Deployment %s/%s: %w", t.namespace, control.AutoscalerName, err)
	}
	return nil
}
