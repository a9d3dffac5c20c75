package knative

import (
	"context"
	"errors"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Start is part of [autoscaler.Effects].
func (f *Fleet) Start(ctx context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	return "", errors.New("not yet")
}

// Wake is part of [autoscaler.Effects].
func (f *Fleet) Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	return i, errors.New("not yet")
}

// Sleep is part of [autoscaler.Effects].
func (f *Fleet) Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain time.Duration) (api.InstanceStatus, error) {
	return i, errors.New("not yet")
}

// Stop is part of [autoscaler.Effects].
func (f *Fleet) Stop(ctx context.Context, i api.InstanceStatus, drain time.Duration) error {
	return errors.New("not yet")
}

// State is part of [autoscaler.Effects].
func (f *Fleet) State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error) {
	return i, errors.New("not yet")
}

// Grant is part of [autoscaler.Effects].
func (f *Fleet) Grant(ctx context.Context, g api.Grant) error { return f.deps.Activators.Grant(ctx, g) }

// Revoke is part of [autoscaler.Effects].
func (f *Fleet) Revoke(ctx context.Context, g api.Grant) error {
	return f.deps.Activators.Revoke(ctx, g)
}

// Fail is part of [autoscaler.Effects].
func (f *Fleet) Fail(ctx context.Context, name api.FunctionName, err *api.Error) error {
	return f.deps.Activators.Fail(ctx, name, err)
}
