package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chunksOf reads a stream and calls seen with the number of each of its events. Of each it returns what is not null, without id and time, which must not
// change; and the message of the error that ends it, empty where it is whole.
func chunksOf(t *testing.T, url, path, body string, seen func(n int)) (chunks []string, failure string) {
	t.Helper()
	resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	own := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case strings.Contains(lines.Text(), "rouse-state"), strings.Contains(lines.Text(), `token_ids":[`):
			t.Errorf("the client got %s", lines.Text())
		case data == "[DONE]":
			return chunks, ""
		case !found:
			continue
		}
		var c map[string]any
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if e, failed := c["error"].(map[string]any); failed {
			return chunks, fmt.Sprint(e["message"])
		}
		if is := fmt.Sprint(c["id"], c["created"]); own == "" {
			own = is
		} else if is != own {
			t.Errorf("one stream has the ids and times %s and %s", own, is)
		}
		delete(c, "id")
		delete(c, "created")
		if usage, is := c["usage"].(map[string]any); is {
			delete(usage, "prompt_tokens_details")
		}
		for _, choice := range c["choices"].([]any) {
			maps.DeleteFunc(choice.(map[string]any), func(_ string, v any) bool { return v == nil })
		}
		raw, _ := json.Marshal(c)
		chunks = append(chunks, string(raw))
		seen(len(chunks))
	}
	return chunks, "it ends without an end"
}

// killed ends the runtime of a function, or the function's own process.
func (p *place) killed(t *testing.T, name string, function bool) {
	t.Helper()
	if function {
		if err := p.killFunction(name); err != nil {
			t.Error(err)
		}
		return
	}
	i, err := p.instanceNow(name)
	if err != nil {
		t.Error(err)
		return
	}
	_ = syscall.Kill(i.PID, syscall.SIGKILL)
}

// TestVLLMStreamsOutliveTheirInstance kills a vLLM, or its function, in the middle of a stream: the client gets what it would have got. What can't go on
// ends with an error that says why.
func TestVLLMStreamsOutliveTheirInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	manifest := simulatedChat(t, "2ms")
	p, pause := newStrange(t, "-f", manifest), filepath.Join(filepath.Dir(manifest), "pause")
	const chat, text = "/v1/chat/completions", "/v1/completions"
	for _, test := range []struct {
		path, more string
		at         int
		function   bool
		open       bool   // as many tokens as the context has left
		why        string // it does not go on
	}{
		{path: chat, more: `"temperature":0`, at: 1},
		{path: chat, more: `"temperature":1`, at: 3, open: true},
		{path: chat, more: `"ignore_eos":true,"stream_options":{"include_usage":true}`, at: 9, function: true},
		{path: text, more: `"temperature":0.8,"min_tokens":30,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, at: 8},
		{path: text, more: `"temperature":0,"seed":4`, at: 2, function: true},
		{path: chat, more: `"stop":["zebra"]`, at: 3, why: "the field stop does not allow that"},
		{path: chat, more: `"seed":4`, at: 3, why: "this value of the field seed does not allow that"},
		{path: text, more: `"logprobs":1`, at: 3, function: true, why: "the field logprobs does not allow that"},
	} {
		body := `{"model":"chat","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"go on"}],` + test.more + `}`
		if test.path == text {
			body = `{"model":"chat","stream":true,"max_tokens":50,"prompt":"go on",` + test.more + `}`
		}
		if test.open {
			body = strings.Replace(body, `"max_tokens":50,`, "", 1)
		}
		want, failure := chunksOf(t, p.server.url, test.path, body, func(int) {})
		if failure != "" || len(want) < 12 {
			t.Fatalf("%s: %d events, %s\n%s", body, len(want), failure, p.server.output())
		}
		if err := os.WriteFile(pause, fmt.Append(nil, test.at), 0o600); err != nil { // so that it has not ended when it is killed
			t.Fatal(err)
		}
		got, failure := chunksOf(t, p.server.url, test.path, body, func(n int) {
			if n == test.at {
				p.killed(t, "chat", test.function)
				_ = os.Remove(pause)
			}
		})
		if test.why != "" {
			if !strings.Contains(failure, test.why) {
				t.Errorf("%s: %q, want an error that has %q", body, failure, test.why)
			}
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" || failure != "" {
			t.Fatalf("%s, killed behind event %d: %s (-undisturbed +killed):\n%s\n%s", body, test.at, failure, diff, p.server.output())
		}
	}
	if n := strings.Count(p.server.output(), `"answer cut, and goes on elsewhere"`); n != 5 {
		t.Errorf("%d of 5 streams went on elsewhere", n)
	}
}

// simulatedChat writes the manifest of a function with the simulated vLLM, and the model as vLLM has it when it has fetched
// it. A token takes step. It returns the manifest's path.
func simulatedChat(t *testing.T, step string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path, repository := filepath.Join(dir, "functions.yaml"), filepath.Join(dir, "models--sim--llama-8b")
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, text := range map[string]string{
		path: fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/model: sim/llama-8b}}
    spec: {containerConcurrency: 4, containers: [{image: vllm/vllm-openai, env: [{name: VLLMSIM_FLAGS, value: --step-time=%s --load-time=0}, {name: HF_HUB_CACHE, value: %q}, {name: VLLMSIM_PAUSE, value: %q}]}]}
`, step, dir, filepath.Join(dir, "pause")),
		filepath.Join(repository, "refs/main"):                        commit,
		filepath.Join(repository, "snapshots", commit, "config.json"): "{}",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
