package kn

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// pairs are the pods of dual pods that would be left without anybody to end them: those that
// Rouse made, and those that it keeps from being deleted.
func (i *installer) pairs(ctx context.Context) ([]corev1.Pod, error) {
	var all []corev1.Pod
	for _, selector := range []string{dualpod.LabelProvider, "serving.knative.dev/revision"} {
		found, err := i.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, refusal(err, "list", pods, metav1.NamespaceAll, "")
		}
		for _, p := range found.Items {
			if p.Labels[dualpod.LabelProvider] != "" || slices.Contains(p.Finalizers, dualpod.Finalizer) {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// endPairs takes dual pods apart once nobody binds any: finalizers go, and with them
// whatever waits for them to be deleted; the pods that Rouse has made are deleted.
func (i *installer) endPairs(ctx context.Context) error {
	all, err := i.pairs(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.Contains(p.Finalizers, dualpod.Finalizer) {
			rest := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == dualpod.Finalizer })
			free, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"finalizers": rest, "annotations": map[string]any{dualpod.AnnotationBound: nil}}})
			if err != nil {
				return fmt.Errorf("take dual pods apart: %w", err)
			}
			_, err = i.kube.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, free, metav1.PatchOptions{FieldManager: fieldManager})
			if err != nil && !apierrors.IsNotFound(err) {
				return refusal(err, "patch", pods, p.Namespace, p.Name)
			}
		}
		if p.Labels[dualpod.LabelProvider] == "" {
			continue
		}
		if err := i.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return refusal(err, "delete", pods, p.Namespace, p.Name)
		}
		i.say("deleted pod %s/%s, which ran a model for another pod's GPUs", p.Namespace, p.Name)
	}
	return nil
}
