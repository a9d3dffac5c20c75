package supervise

import (
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// A call on behalf of a request that is in gets through while the gate drains.
func TestInside(t *testing.T) {
	g := newGate(1)
	if _, refused := g.Inside(); refused == nil {
		t.Error("let in before there is a runtime")
	}
	g.open("http://127.0.0.1:1")
	if _, refused := g.Enter(); refused != nil {
		t.Fatal(refused)
	}
	g.shut(refusal(api.Draining, ""), reopening{})
	if base, refused := g.Inside(); refused != nil || base != "http://127.0.0.1:1" {
		t.Errorf("a draining gate: %q, %v; want the runtime", base, refused)
	}
	g.Leave()
	if _, refused := g.Inside(); refused == nil || refused.Code != api.CodeDraining {
		t.Errorf("an empty shut gate: %v, want %s", refused, api.CodeDraining)
	}
}
