package knative

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/e2e/cluster"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// greedy streams tokens of a function's answer to prompt, and calls seen with the number of each event. It returns the
// events' texts without the id and the time, which must not change. It returns an error for a stream that is not a
// valid whole one.
func greedy(ctx context.Context, f *function, prompt string, tokens int, seen func(n int)) (choices []string, err error) {
	body, err := json.Marshal(map[string]any{"model": f.name, "prompt": prompt, "stream": true, "ignore_eos": true, "temperature": 0, "max_tokens": tokens})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.c.IngressURL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host = f.host()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	own := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case strings.Contains(lines.Text(), "rouse-state"), strings.Contains(lines.Text(), "rouse-moved"):
			return choices, fmt.Errorf("the client got %q", lines.Text())
		case data == "[DONE]":
			return choices, nil
		case !found:
			continue
		}
		var chunk struct {
			ID             string
			Created        int
			Choices, Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			return choices, errors.Join(fmt.Errorf("after %d events comes %q", len(choices), data), err)
		}
		is := fmt.Sprint(chunk.ID, chunk.Created)
		if own != "" && is != own {
			return choices, fmt.Errorf("one stream has the ids and times %s and %s", own, is)
		}
		own = is
		choices = append(choices, string(chunk.Choices))
		seen(len(choices))
	}
	return choices, fmt.Errorf("after %d events the stream ends without a last one", len(choices))
}

// streamsLeaveTheirPod has a stream of our engine lose its instance in the middle. The reason is a function of a higher
// priority that needs its GPU, a pod that is killed, or a pod that is deleted. Each time the client gets the same text
// as without.
func streamsLeaveTheirPod(t *testing.T) {
	c, in := gpus(t, 1)
	if out, err := c.Kubectl(t.Context(), "annotate", "namespace", in, "rouse.dev/max-priority=1"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A model that takes its time.
	file := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 2048})
	address, _ := serveNode(t, c, http.FileServer(http.Dir(filepath.Dir(file))))
	made := func(name, model string, annotations ...string) *function {
		return createIn(t, in, name, functionImage, append(annotations, "rouse.dev/model="+model, "rouse.dev/sleep-after=0", "rouse.dev/device-memory=69Gi", "rouse.dev/memory=512Mi"),
			"--limit", "nvidia.com/gpu=1", "--arg=--", "--arg=--threads=1")
	}
	slow := made("moves", "http://"+address+"/"+filepath.Base(file))
	urgent := made("urgent", "pico", "rouse.dev/priority=1")
	// A stream must outlast the deletion of its pod, which takes some seconds, on a quick machine and end in time on a slow one.
	const short, lasts = 100, 10 * time.Second
	var first, last time.Time
	if _, err := greedy(t.Context(), slow, "a stream that moves", short, func(n int) {
		if last = time.Now(); n == 1 {
			first = last
		}
	}); err != nil {
		t.Fatal(err)
	}
	tokens := min(max(int(lasts/(last.Sub(first)/short)), 2*short), 1900)
	want, err := greedy(t.Context(), slow, "a stream that moves", tokens, func(int) {})
	if err != nil || len(want) < tokens/2 {
		t.Fatalf("the undisturbed stream has %d events: %v", len(want), err)
	}
	urgent.ask("red blue") // how long it takes to come is known from then on
	for _, how := range []struct {
		name string
		do   func(ctx context.Context, pod string) error
		seen string // in the logs of the activators
	}{
		{"it makes room", func(ctx context.Context, _ string) error { return asking(urgent)(ctx, 1) }, "its instance gives way, and it goes on elsewhere"},
		{"its pod is killed", func(ctx context.Context, pod string) error { return killFunction(ctx, c, in, pod) }, "answer cut, and goes on elsewhere"},
		{"its pod is deleted", func(ctx context.Context, pod string) error {
			_, err := c.Kubectl(ctx, "delete", "pod", "-n", in, pod, "--force", "--grace-period=0")
			return err
		}, "answer cut, and goes on elsewhere"},
	} {
		before, pod, done := said(t, slow, how.seen), slow.onlyPod(), make(chan error, 1)
		got, err := greedy(t.Context(), slow, "a stream that moves", tokens, func(n int) {
			if n == 20 {
				go func() { done <- how.do(t.Context(), pod) }()
			}
		})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%s: %v (-undisturbed +disturbed):\n%s", how.name, err, diff)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", how.name, err)
		}
		after := said(t, slow, how.seen)
		maps.DeleteFunc(after, func(line string, _ bool) bool { return before[line] })
		if len(after) == 0 {
			t.Errorf("%s: the stream had been generated before that", how.name)
		}
	}
	if why := slow.reasons(); !strings.Contains(why, "moves its requests, or drains") {
		t.Errorf("the reasons of %s do not speak of a move:\n%s", slow.name, why)
	}
}

// killFunction kills the function in a pod, and so all that it has started, as a crash does.
func killFunction(ctx context.Context, c *cluster.Cluster, in, pod string) error {
	id, err := c.Kubectl(ctx, "get", "pod", "-n", in, pod, "-o", `jsonpath={.status.containerStatuses[?(@.name=="user-container")].containerID}`)
	if err != nil {
		return err
	}
	cmd := c.Exec(ctx, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", strings.TrimPrefix(strings.TrimSpace(id), "containerd://"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kill %s: %w: %s", pod, err, out)
	}
	return nil
}

// said are the lines with message that the activators which there are have logged of a function.
func said(t *testing.T, f *function, message string) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	// A pod that starts or ends has no log.
	for line := range strings.Lines(kubectl(t, f.c, "-n", "knative-serving", "logs", "-l", "app=rouse-activator", "--tail=-1", "--prefix", "--ignore-errors")) {
		if strings.Contains(line, message) && strings.Contains(line, f.namespace()+"/"+f.name) {
			lines[line] = true
		}
	}
	return lines
}
