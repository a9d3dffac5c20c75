package cli

import (
	"context"
	"errors"
	"testing"
)

// TestBenchEnded: requests that Ctrl-C ends have not failed.
func TestBenchEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r := bench(ctx, func() (measured, error) {
		if n++; n == 3 {
			cancel()
			return measured{}, context.Canceled
		}
		if n == 2 {
			return measured{}, errors.New("refused")
		}
		return measured{fallback: "small"}, nil
	}, 10, 1, func() {})
	if r.Requests != 2 || r.Failed != 1 || r.Fallback != 1 {
		t.Errorf("%d requests, %d failed, %d by a fallback, want 2, 1 and 1", r.Requests, r.Failed, r.Fallback)
	}
}
