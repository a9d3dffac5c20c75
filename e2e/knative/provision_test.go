package knative

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestHeldWhileANodeIsProvisioned takes the only node out of use and asks for a function. Its request is held beyond
// its own limit while an event says that a node is being added. Its stream says so too, and it is answered once there
// is a node.
func TestHeldWhileANodeIsProvisioned(t *testing.T) {
	c := rouse(t)
	f := create(t, "no-node", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/hold-timeout=8s"})
	name, err := c.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "cordon", name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	uncordon := func() { _, _ = c.Kubectl(t.Context(), "uncordon", name) }
	defer uncordon()

	a, err := call(t.Context(), c, f.host(), "/v1/chat/completions", chat(f.name, "red blue"))
	if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "hold-timeout") || !strings.Contains(a.body, "no node takes the pod") {
		t.Errorf("without a node in sight: %d %s (%v), want 503 after hold-timeout, and why", a.status, a.body, err)
	}
	f.hasPods(1)
	event := map[string]any{"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "no-node-up", "namespace": "default"},
		"involvedObject": map[string]any{"kind": "Pod", "namespace": "default", "name": f.pods()[0].Metadata.Name},
		"reason":         "TriggeredScaleUp", "message": "pod triggered scale-up: [{cpu-pool 1->2 (max: 4)}]", "type": "Normal",
		"lastTimestamp": time.Now().UTC().Format(time.RFC3339), "source": map[string]any{"component": "cluster-autoscaler"}}
	raw, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/event.json"
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "apply", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { _, _ = c.Kubectl(context.Background(), "delete", "-f", file, "--ignore-not-found") }()

	body, err := json.Marshal(chat(f.name, "red blue", func(m map[string]any) { m["stream"] = true }))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.IngressURL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = f.host()
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, done := false, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var waited float64
		line := lines.Text()
		if n, _ := fmt.Sscanf(line, ": rouse stage=provisioning-node waited=%fs", &waited); n == 1 && waited > 12 && !said {
			said = strings.Contains(line, "cpu-pool 1->2")
			uncordon() // the node exists
		}
		done = done || line == "data: [DONE]"
		if strings.Contains(line, `"error"`) {
			t.Errorf("the stream says %s", line)
		}
	}
	if !said || !done {
		t.Errorf("the stream said that a node is being added: %t, and was answered: %t; want both", said, done)
	}
}
