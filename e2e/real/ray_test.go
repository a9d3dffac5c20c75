package real

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const rayDeclared = "http_options: {request_timeout_s: 60}\napplications:\n- {name: words, route_prefix: /, import_path: 'words:app'}\n"

// rayFunction is the manifest of a function on Ray Serve, whose modules are those in the folder ray.
func rayFunction(t *testing.T, name, model string) string {
	folder, err := filepath.Abs("ray")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
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

// TestRay runs functions in one real Ray that the first of them starts: a second one, sleep and wake, an application that can't be imported, a
// removal. A configuration file with settings of a whole Ray has one of its own.
func TestRay(t *testing.T) {
	dir := installed(t, "ray")
	file := filepath.Join(t.TempDir(), "words.yaml")
	if err := os.WriteFile(file, []byte(rayDeclared), 0o600); err != nil {
		t.Fatal(err)
	}
	u := start(t, dir, rayFunction(t, "one", "words:app")+rayFunction(t, "two", "words:app")+rayFunction(t, "broken", "nosuch:app")+rayFunction(t, "file", file), "RAY_USAGE_STATS_ENABLED=0")
	rays := func(want int) {
		t.Helper()
		if left := u.processes("gcs/gcs_server"); len(left) != want {
			t.Errorf("want %d Rays, and there are %v", want, left)
		}
	}
	u.answersInWords(t, "one", "starts a Ray")
	u.answersInWords(t, "two", "joins it")
	rays(1)
	u.rouse("sleep", "one")
	if state := u.instance("one").State; state != "asleep" {
		t.Errorf("put to sleep, it is %s", state)
	}
	u.answersInWords(t, "two", "is awake beside one that sleeps")
	u.answersInWords(t, "one", "wakes")
	c := u.front()
	began := time.Now()
	status, answer, err := c.send("/v1/chat/completions", `{"model":"broken","messages":[]}`)
	t.Logf("what can't be imported fails after %v", time.Since(began))
	if err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("what can't be imported answers %d %s, %v", status, answer, err)
	}
	if why := u.rouse("why", "broken"); !strings.Contains(why, "No module named 'nosuch'") {
		t.Errorf("why: %s", why)
	}
	u.rouse("rm", "two")
	u.answersInWords(t, "one", "is awake beside one that is deleted")
	rays(1)
	u.answersInWords(t, "file", "starts a Ray of its own")
	rays(2)
	u.rouse("sleep", "file")
	rays(1)
	u.answersInWords(t, "one", "is awake beside a Ray that has ended")
}

// TestRayOfOthers runs a function in a Ray that the test has started, beside an application that the function must keep.
func TestRayOfOthers(t *testing.T) {
	dir := installed(t, "ray")
	folder, err := os.MkdirTemp("", "ray") // a Unix socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	const dashboard = "http://127.0.0.1:28265"
	cmd := exec.Command(filepath.Join(dir, "venv/bin/ray"), "start", "--head", "--block", "--port=0", "--dashboard-port=28265", "--ray-client-server-port=28266", "--temp-dir="+folder)
	cmd.Env = append(os.Environ(), "RAY_USAGE_STATS_ENABLED=0", "PYTHONPATH=ray")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = os.RemoveAll(folder)
	})
	there := func() (names map[string]struct{ Status string }) {
		var all struct {
			Applications map[string]struct{ Status string }
		}
		resp, err := http.Get(dashboard + "/api/serve/applications/")
		if err != nil {
			return nil
		}
		defer resp.Body.Close()
		_ = json.NewDecoder(resp.Body).Decode(&all) // what is no answer has no applications
		return all.Applications
	}
	declare := func() error {
		req, err := http.NewRequest(http.MethodPut, dashboard+"/api/serve/applications/", strings.NewReader(`{"http_options": {"host": "127.0.0.1", "port": 28267},
			"applications": [{"name": "theirs", "route_prefix": "/theirs", "import_path": "words:app"}]}`))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	(&up{t: t}).eventually("Ray takes an application", declare)
	u := start(t, dir, rayFunction(t, "ours", "words:app"), "RAY_ADDRESS=127.0.0.1:28265")
	u.answersInWords(t, "ours", "joins a Ray")
	if all := there(); len(all) != 2 || all["theirs"].Status == "DELETING" {
		t.Errorf("there are %v", all)
	}
	u.rouse("sleep", "ours")
	if all := there(); len(all) != 1 || all["theirs"].Status == "DELETING" {
		t.Errorf("while ours sleeps there are %v", all)
	}
	u.answersInWords(t, "ours", "wakes")
}

// answersInWords asks a function for an answer and for a stream.
func (u *up) answersInWords(t *testing.T, name, what string) {
	t.Helper()
	c := u.front()
	c.t = t
	const words = "word0 word1 word2 word3 word4 word5 "
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}],"max_tokens":6`, name)
	var whole struct {
		Choices []struct{ Message struct{ Content string } }
	}
	began := time.Now()
	answer := c.ask("/v1/chat/completions", body+"}")
	t.Logf("%s %s: answers after %v", name, what, time.Since(began))
	if err := json.Unmarshal([]byte(answer), &whole); err != nil || len(whole.Choices) != 1 || whole.Choices[0].Message.Content != words {
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
	if said != words {
		t.Errorf("the stream says %q", said)
	}
}
