package knative

import (
	"testing"

	"go.uber.org/zap"
	"knative.dev/pkg/observability/resource"
	"knative.dev/pkg/websocket"
)

// TestReadyWithoutKnativesAutoscaler: functions don't need it, and all their requests pass the activators.
func TestReadyWithoutKnativesAutoscaler(t *testing.T) {
	link := websocket.NewDurableSendingConnection("ws://127.0.0.1:1", zap.NewNop().Sugar())
	defer func() { _ = link.Shutdown() }()
	p := &process{ending: make(chan struct{}), stock: &stock{link: link}}
	if err := p.ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if close(p.ending); p.ready() == nil {
		t.Error("ready while it ends")
	}
}

// TestTelemetrySchema: Knative's packages panic at startup if they and OpenTelemetry's SDK name different schemas.
func TestTelemetrySchema(t *testing.T) {
	t.Setenv("SYSTEM_NAMESPACE", "knative-serving")
	if r := resource.Default(component); r.Len() == 0 {
		t.Error("the resource has no attribute")
	}
}
