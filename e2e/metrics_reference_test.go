package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/promtext"
)

// TestMetricsReference: what programs that run answer at /metrics is in docs/metrics.md, with the same types, in the part that is theirs.
func TestMetricsReference(t *testing.T) {
	parts := metricsReference(t)
	p := newServer(t, "--store", filepath.Join(t.TempDir(), "store"), "--model", "pico")
	if out, err := p.rouse("run", "pico", "echo hello"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	front := p.server.url
	compareMetrics(t, "rouse up", fetchMetrics(t, http.DefaultClient, front+"/metrics"), 20,
		parts["The front door"], parts["Files, batches and later answers"], parts["The autoscaler"])

	f := newMeasured(t, runtimes["engine"])
	if _, err := f.post(t.Context(), "/v1/completions", `{"model":"m","prompt":"echo hello","max_tokens":4}`); err != nil {
		t.Fatal(err)
	}
	compareMetrics(t, "rouse function", f.fetch("/metrics"), 20, parts["An instance"])

	at := api.Endpoint("unix:" + filepath.Join(p.runtime, "e"))
	engine := exec.CommandContext(t.Context(), filepath.Join(bin, "rouse"), "engine", "serve", "--model", "pico", "--listen", string(at))
	engine.Env = append(os.Environ(), p.env()...)
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = engine.Process.Kill()
		_ = engine.Wait()
	})
	transport := api.NewTransport(2)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	if err := retry(func() error {
		resp, err := client.Get(at.URL("/health"))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	compareMetrics(t, "rouse engine serve", fetchMetrics(t, client, at.URL("/metrics")), 30, parts["The engine"])
}

// metricsReference has the types of the metrics in docs/metrics.md, by heading and name.
func metricsReference(t *testing.T) map[string]map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	var heading string
	for line := range strings.Lines(string(raw)) {
		if h, is := strings.CutPrefix(line, "## "); is {
			heading = strings.TrimSpace(h)
			all[heading] = map[string]string{}
		}
		if name, is := strings.CutPrefix(line, "| `"); is {
			cells := strings.Split(name, " | ")
			all[heading][strings.TrimSuffix(cells[0], "`")] = cells[1]
		}
	}
	return all
}

func fetchMetrics(t *testing.T, c *http.Client, url string) []byte {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return raw
}

// compareMetrics looks for what a program answers in the parts that it has; there must be some.
func compareMetrics(t *testing.T, program string, text []byte, least int, parts ...map[string]string) {
	t.Helper()
	found, err := promtext.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	seen := 0
	for name, family := range found {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		seen++
		kind := strings.ToLower(family.GetType().String())
		var want string
		for _, p := range parts {
			if p[name] != "" {
				want = p[name]
			}
		}
		if want != kind {
			t.Errorf("%s: %s is a %s, and docs/metrics.md has %q there", program, name, kind, want)
		}
	}
	if seen < least {
		t.Errorf("%s has %d metrics of ours, want at least %d", program, seen, least)
	}
}
