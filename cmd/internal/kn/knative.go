package kn

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
)

// Knative Serving's minor version that Rouse is built on, and how far from it another
// may be: PodAutoscalers and the activator's ways of speaking are Knative's own affair
// and change without notice.
const (
	builtOn = settings.TestedMinor
	reach   = settings.Skew
)

// needed are the APIs of Knative that Rouse speaks.
var needed = []schema.GroupVersionResource{
	services, revisions, podAutoscalers,
	{Group: "networking.internal.knative.dev", Version: "v1alpha1", Resource: "serverlessservices"},
}

// knative checks that the cluster has Knative Serving, of a version that Rouse works
// with, and returns what it is. Its errors say what to do; anyVersion lets every
// version pass that has the APIs.
func (c *cluster) knative(ctx context.Context, anyVersion bool) (string, error) {
	for _, r := range needed {
		known, err := c.kube.Discovery().ServerResourcesForGroupVersion(r.GroupVersion().String())
		switch {
		case apierrors.IsNotFound(err) && r == services:
			return "", fmt.Errorf("the cluster has no Knative Serving (no %s): install it first, as https://knative.dev/docs/install/ says", r.GroupVersion())
		case apierrors.IsNotFound(err):
			return "", fmt.Errorf("the cluster's Knative Serving has no %s: Rouse is built for version 1.%d", r.GroupVersion(), builtOn)
		case err != nil:
			return "", fmt.Errorf("ask the cluster for its APIs: %w", err)
		}
		if !has(known, r.Resource) {
			return "", fmt.Errorf("the cluster's Knative Serving has no %s: Rouse is built for version 1.%d", r.GroupResource(), builtOn)
		}
	}
	activator, err := c.kube.AppsV1().Deployments(control.SystemNamespace).Get(ctx, "activator", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("the namespace %s has no Deployment activator, whose place Rouse takes: install Knative Serving whole", control.SystemNamespace)
	case err != nil:
		return "", refusal(err, "get", deployments, control.SystemNamespace, "activator")
	}
	version := activator.Labels["app.kubernetes.io/version"]
	if version == "" {
		version = activator.Labels["serving.knative.dev/release"]
	}
	return version, supported(version, anyVersion)
}

func has(known *metav1.APIResourceList, resource string) bool {
	for _, r := range known.APIResources {
		if r.Name == resource {
			return true
		}
	}
	return false
}

// supported reports why a version of Knative Serving is none that Rouse works with. A
// build of somebody's own, whose version is "devel" or none, passes: its APIs are there.
func supported(version string, any bool) error {
	if version == "" || version == "devel" || any {
		return nil
	}
	minor, known := settings.Minor(version)
	if !known || minor < builtOn-reach || minor > builtOn+reach {
		return fmt.Errorf("the cluster has Knative Serving %s: Rouse is built for 1.%d and works with 1.%d to 1.%d; --any-knative installs it all the same", version, builtOn, builtOn-reach, builtOn+reach)
	}
	return nil
}
