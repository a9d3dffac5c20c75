package knative

import (
	"context"

	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
)

// NewController makes the reconciler of PodAutoscalers of our class. cmw watches the
// ConfigMaps of the system namespace (config-autoscaler, config-deployment) and must be
// started by the caller after this call. Run it with Impl.RunContext on the leader only,
// after [Fleet.Sync]; it has no leader election of its own.
func NewController(ctx context.Context, fleet *Fleet, cmw configmap.Watcher) *controller.Impl {
	return nil
}
