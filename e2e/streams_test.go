package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// choicesOf reads a streamed completion, and calls seen with the number of each of its events. What is the answer's own, its id and its time,
// must not change.
func choicesOf(t *testing.T, url, body string, seen func(n int), header ...string) (choices []string, whole bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, own := bufio.NewScanner(resp.Body), ""
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if strings.Contains(lines.Text(), "rouse-state") {
				t.Errorf("the client got %q", lines.Text())
			}
			continue
		}
		if data == "[DONE]" {
			return choices, true
		}
		var chunk struct {
			ID      string
			Created int
			Choices json.RawMessage
			Usage   json.RawMessage
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		if chunk.Error != nil {
			return choices, false
		}
		if is := fmt.Sprint(chunk.ID, chunk.Created); own == "" {
			own = is
		} else if is != own {
			t.Errorf("one stream has the ids and times %s and %s", own, is)
		}
		choices = append(choices, string(chunk.Choices))
		seen(len(choices))
	}
	return choices, false
}

// TestStreamsOutliveTheirInstance kills what generates a stream, runtime or function, in the middle: the client
// gets what it would have got.
func TestStreamsOutliveTheirInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	manifest := filepath.Join(dir, "slow.yaml")
	model := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 512})
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: slow}
spec: {template: {metadata: {annotations: {rouse.dev/model: %s, rouse.dev/memory: 256Mi}}, spec: {containers: [{image: a, args: [--threads=1]}]}}}
`, model), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newServer(t, "-f", manifest)
	body := func(more string) string {
		return `{"model":"slow","prompt":"a stream that goes on","stream":true,"ignore_eos":true` + more + `}`
	}
	forms := []string{`,"max_tokens":48,"temperature":0`, `,"max_tokens":48,"temperature":1.2,"seed":5,"logprobs":2`, `,"max_tokens":40,"temperature":1,"seed":9,"guided_regex":"[a-z ]{30,60}"`}
	for i, form := range forms {
		want, whole := choicesOf(t, p.server.url, body(form), func(int) {})
		if !whole || len(want) < 10 {
			t.Fatalf("%s: %d events, whole %v", form, len(want), whole)
		}
		for _, at := range []int{1, 2 + i, len(want) / 2} {
			got, whole := choicesOf(t, p.server.url, body(form), func(n int) {
				if n != at {
					return
				}
				i, err := p.instanceNow("slow")
				if err != nil {
					t.Error(err)
					return
				}
				victim := i.PID
				if parent, err := parentOf(victim); err == nil && at%2 == 0 && parent != p.server.cmd.Process.Pid && parent > 1 {
					victim = parent
				}
				_ = syscall.Kill(victim, syscall.SIGKILL)
			})
			if diff := cmp.Diff(want, got); diff != "" || !whole {
				t.Fatalf("%s, killed behind event %d: whole %v (-undisturbed +killed):\n%s\n%s", form, at, whole, diff, p.server.output())
			}
		}
	}
	if n := strings.Count(p.server.output(), `"answer cut, and goes on elsewhere"`); n == 0 {
		t.Error("no stream was cut: all had been generated before the kills")
	} else {
		t.Logf("%d of %d streams went on elsewhere", n, 3*len(forms))
	}
}
