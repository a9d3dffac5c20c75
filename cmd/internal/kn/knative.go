package kn

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rouse-dev/rouse/autoscaler/settings"
)

var needed = []schema.GroupVersionResource{
	services, revisions, podAutoscalers,
	{Group: "networking.internal.knative.dev", Version: "v1alpha1", Resource: "serverlessservices"},
}

// knative checks that the cluster has a Knative Serving that Rouse works with. Errors say what to do; remark may be
// empty.
func (c *cluster) knative(ctx context.Context) (version, remark string, err error) {
	for _, r := range needed {
		known, err := c.kube.Discovery().ServerResourcesForGroupVersion(r.GroupVersion().String())
		switch {
		case apierrors.IsNotFound(err) && r == services:
			return "", "", fmt.Errorf("the cluster has no Knative Serving (no %s): install it first, as https://knative.dev/docs/install/ says", r.GroupVersion())
		case apierrors.IsNotFound(err):
			return "", "", fmt.Errorf("the cluster's Knative Serving has no %s: Rouse is built for version 1.%d", r.GroupVersion(), settings.TestedMinor)
		case err != nil:
			return "", "", fmt.Errorf("ask the cluster for its APIs: %w", err)
		}
		if !slices.ContainsFunc(known.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource }) {
			return "", "", fmt.Errorf("the cluster's Knative Serving has no %s: Rouse is built for version 1.%d", r.GroupResource(), settings.TestedMinor)
		}
	}
	return settings.Check(ctx, c.kube, false)
}
