package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Plain is embedded by adapters and fakes of servers that need no conversion, and have neither adapters nor metrics.
type Plain struct{}

// Request changes nothing.
func (Plain) Request(string, *jsonfield.Object) *api.Error { return nil }

// Failure changes nothing.
func (Plain) Failure(_ string, _ int, body []byte) []byte { return body }

// Reload is not supported.
func (Plain) Reload(context.Context, api.Endpoint) error {
	return fmt.Errorf("reload the weights: the runtime loads them only at its start: %w", errors.ErrUnsupported)
}

// LoadAdapter is not supported.
func (Plain) LoadAdapter(context.Context, api.Endpoint, api.Adapter) error {
	return fmt.Errorf("load an adapter: the runtime takes none while it runs: %w", errors.ErrUnsupported)
}

// UnloadAdapter is not supported.
func (Plain) UnloadAdapter(context.Context, api.Endpoint, api.ModelName) error {
	return fmt.Errorf("unload an adapter: the runtime takes none while it runs: %w", errors.ErrUnsupported)
}

// Signals is not supported.
func (Plain) Signals(context.Context, api.Endpoint) (Signals, error) {
	return Signals{}, fmt.Errorf("read the runtime's metrics: it has none: %w", errors.ErrUnsupported)
}
