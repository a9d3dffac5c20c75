package functions

import (
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestToldHost: a runtime that refuses unknown hosts continues to do so at a loopback port.
func TestToldHost(t *testing.T) {
	for listen, want := range map[api.Endpoint]string{
		"unix:/run/fn.sock": "localhost", "http://127.0.0.1:8080": "", "http://[::1]:8080": "", "http://localhost:8080": "",
		"http://[::]:8080": "localhost", "http://0.0.0.0:8080": "localhost", "http://10.0.0.7:8080": "localhost", "http://:8080": "localhost",
	} {
		if got := toldHost(listen); got != want {
			t.Errorf("%s: got %q, want %q", listen, got, want)
		}
	}
}
