//go:build linux

package functions_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMetricsOfTheirOwn: at their own address everybody may read the metrics, and nothing else.
func TestMetricsOfTheirOwn(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + l.Addr().String()
	l.Close()
	i := newInstance(t)
	cfg := i.config()
	cfg.Listen, cfg.MetricsListen = "http://127.0.0.1:0", strings.TrimPrefix(at, "http://")
	i.run(cfg)
	last := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(last, `rouse_function_state{state="awake"} 1`); time.Sleep(10 * time.Millisecond) { // it comes after the instance's own door
		if _, last, err = ask(at + "/metrics"); time.Now().After(end) {
			t.Fatalf("%v %s", err, last)
		}
	}
	for _, path := range []string{"/", "/rouse/v1/state", "/v1/models", "/metrics/", "/debug/pprof/"} {
		if status, body, err := ask(at + path); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}
	resp, err := http.Post(at+"/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// TestMetricsWithoutAnAddress: an address in use does not keep an instance from serving.
func TestMetricsWithoutAnAddress(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	i := newInstance(t)
	cfg := i.config()
	cfg.Listen, cfg.MetricsListen = "http://127.0.0.1:0", l.Addr().String()
	i.run(cfg)
	if status, body := i.get("/v1/models"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

func ask(url string) (int, string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
