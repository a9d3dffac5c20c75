package main

import (
	"strings"
	"testing"
)

// Whatever is mistyped, the error says what to change, and nothing starts.
func TestBadInput(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--pod=a", "--kubeconfig"}, // not in a pod
		{"--pod=a --kubeconfig=/does/not/exist", "/does/not/exist"},
		{"--listen", "flag needs an argument"},
		{"--listen=8080", "host:port"},
		{"--pod=a --listen=http://:8080 --metrics-listen=127.0.0.1:0", "--kubeconfig"}, // well so far
		{"--metrics-listen=unix:/a", "no Unix socket"},
		{"relay --metrics-listen=9091", "host:port"},
		{"relay --autoscaler=https://a", "-autoscaler: endpoint"},
		{"--port=80", "not defined: -port"},
		{"--log-level=loud", "loud"},
		{"--provision-timeout=10", "provision-timeout"},
		{"--provision-timeout=-1s", "-provision-timeout: want more than 0"},
		{"--device-memory=0", "-device-memory: want more than 0"},
		{"--record-size=0", "-record-size: want more than 0"},
		{"serve", "unexpected argument \"serve\""},
	} {
		t.Setenv("KUBECONFIG", "")
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		err := run(t.Context(), strings.Fields(c.args), t.Output())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.args, err, c.want)
		}
	}
}
