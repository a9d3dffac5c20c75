package real

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestRay runs applications of a real Ray Serve, named by an import path and by a configuration file: both are started, asked, put to sleep and woken
// on one machine, at ports of their own. That is done one after the other, then both start at once.
func TestRay(t *testing.T) {
	dir := installed(t, "ray")
	folder, err := filepath.Abs("ray")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "words.yaml")
	if err := os.WriteFile(file, []byte("http_options: {port: 8000, request_timeout_s: 60}\napplications:\n- {name: words, route_prefix: /, import_path: 'words:app'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	manifest := ""
	for name, model := range map[string]string{"path": "words:app", "file": file} {
		manifest += fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/runtime: ray-serve
        rouse.dev/model: %s
        rouse.dev/sleep-after: 2h
        rouse.dev/start-timeout: 15m
        rouse.dev/hold-timeout: 15m
    spec:
      containers: [{image: rayproject/ray, args: [--, --app-dir, %s]}]
---
`, name, model, folder)
	}
	u := start(t, dir, manifest, "RAY_USAGE_STATS_ENABLED=0")
	for _, name := range []string{"path", "file"} {
		t.Run(name, func(t *testing.T) { startedAndWoken(t, u, name) })
	}
	t.Run("both at once", func(t *testing.T) { bothAtOnce(t, u) })
}

// bothAtOnce starts both at the same time, and ends the Ray of one, which does not disturb the other.
func bothAtOnce(t *testing.T, u *up) {
	c := u.front()
	c.t = t
	answers := func(name string) {
		status, got, err := c.send("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[],"max_tokens":2}`, name))
		if err != nil || !strings.Contains(got, "word0 word1") {
			t.Errorf("%s answers %d %s, %v", name, status, got, err)
		}
	}
	var all sync.WaitGroup
	for _, name := range []string{"path", "file"} {
		all.Go(func() { answers(name) })
	}
	all.Wait()
	u.rouse("sleep", "path")
	answers("file")
	if left := u.processes("gcs/gcs_server"); len(left) != 1 {
		t.Errorf("one of two sleeps, and there are %v", left)
	}
}

// startedAndWoken asks a function that does not run yet, and again after a sleep.
func startedAndWoken(t *testing.T, u *up, name string) {
	c := u.front()
	c.t = t
	words := func(n int) (all string) {
		for i := range n {
			all += fmt.Sprintf("word%d ", i)
		}
		return all
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}],"max_tokens":6`, name)
	for range 2 {
		var whole struct {
			Choices []struct{ Message struct{ Content string } }
		}
		answer := c.ask("/v1/chat/completions", body+"}")
		if err := json.Unmarshal([]byte(answer), &whole); err != nil || len(whole.Choices) != 1 || whole.Choices[0].Message.Content != words(6) {
			t.Fatalf("%v: %s", err, answer)
		}
		events, err := c.stream(t.Context(), "/v1/chat/completions", body+`,"stream":true}`, func(int) {})
		if err != nil || len(events) != 7 || events[6] != "[DONE]" {
			t.Fatalf("a stream of %d events, %v: %q", len(events), err, events)
		}
		said := ""
		for _, event := range events[:6] {
			var part struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(event), &part); err != nil || len(part.Choices) != 1 {
				t.Fatalf("%v: %s", err, event)
			}
			said += part.Choices[0].Delta.Content
		}
		if said != words(6) {
			t.Errorf("the stream says %q", said)
		}
		if u.rouse("sleep", name); u.instance(name).State != "asleep" {
			t.Errorf("put to sleep, it is %s", u.instance(name).State)
		}
		if left := u.processes("raylet"); len(left) > 0 {
			t.Errorf("asleep, it has left %v", left)
		}
	}
}
