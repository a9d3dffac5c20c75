package knative

import (
	"testing"

	"knative.dev/pkg/observability/resource"
)

// TestTelemetrySchema: Knative's packages panic at startup if they and OpenTelemetry's SDK name different schemas.
func TestTelemetrySchema(t *testing.T) {
	t.Setenv("SYSTEM_NAMESPACE", "knative-serving")
	if r := resource.Default(component); r.Len() == 0 {
		t.Error("the resource has no attribute")
	}
}
