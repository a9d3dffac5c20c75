package serve_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rouse-dev/rouse/engine/serve"
)

// TestLargestBody checks that the engine accepts the largest body that passes the proxies in front of it: 64 MiB, to
// the byte.
func TestLargestBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{}, 0)
		body := func(size int) string {
			head, tail := `{"model":"other","unknown":"`, `"}`
			return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
		}
		const most = 64 << 20
		for _, tc := range []struct{ size, status int }{{most, http.StatusNotFound}, {most + 1, http.StatusRequestEntityTooLarge}} {
			if resp, data := c.do("POST", "/v1/completions", body(tc.size)); resp.StatusCode != tc.status {
				t.Errorf("a body of %d bytes: %d %s, want %d", tc.size, resp.StatusCode, data, tc.status)
			}
		}
	})
}
