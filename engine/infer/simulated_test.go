package infer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

func TestSimulatedContract(t *testing.T) {
	infertest.Run(t, func(t *testing.T) infer.Inferencer {
		d, err := infer.NewSimulated(infer.SimulatedConfig{Context: 512})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// TestSimulatedTime checks that a step takes the configured time.
func TestSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := infer.ParseSimulated([]byte(`{"step_ns":10000000,"token_ns":1000000}`))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			began := time.Now()
			if _, err := d.Forward(t.Context(), &infer.Batch{Items: []infer.Item{{Tokens: []int32{1, 2}, Blocks: []int32{0}}}}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 12*time.Millisecond {
				t.Errorf("a step of two tokens took %v, want 12ms", took)
			}
			time.Sleep(3 * time.Millisecond)
		}
	})
	for _, bad := range []string{`{"step_ns":-1}`, `{"vocab":-1}`, `{"end":512}`, `{"vocab":9,"end":9}`, `{"speed":1}`, `{`} {
		if _, err := infer.ParseSimulated([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
