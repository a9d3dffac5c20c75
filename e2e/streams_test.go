package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// choicesOf reads a streamed completion, and calls seen with the number of each event. The answer's id and time must
// not change.
func choicesOf(t *testing.T, url, body string, seen func(n int), header ...string) (choices []string, whole bool) {
	t.Helper()
	choices, whole, err := readChoices(t.Context(), url, body, seen, header...)
	if err != nil {
		t.Error(err)
	}
	return choices, whole
}

// readChoices is choicesOf for any goroutine. It returns an error for an invalid stream; an early end is no error.
func readChoices(ctx context.Context, url, body string, seen func(n int), header ...string) (choices []string, whole bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	lines, own := bufio.NewScanner(resp.Body), ""
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if strings.Contains(lines.Text(), "rouse-state") || strings.Contains(lines.Text(), "rouse-moved") {
				return choices, false, fmt.Errorf("the client got %q", lines.Text())
			}
			continue
		}
		if data == "[DONE]" {
			return choices, true, nil
		}
		var chunk struct {
			ID      string
			Created int
			Choices json.RawMessage
			Usage   json.RawMessage
			Error   json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return choices, false, fmt.Errorf("event %q: %w", data, err)
		}
		if chunk.Error != nil {
			return choices, false, nil
		}
		if is := fmt.Sprint(chunk.ID, chunk.Created); own == "" {
			own = is
		} else if is != own {
			return choices, false, fmt.Errorf("one stream has the ids and times %s and %s", own, is)
		}
		choices = append(choices, string(chunk.Choices))
		seen(len(choices))
	}
	return choices, false, nil
}

// slow is the manifest of a function whose streams take long enough to be cut in the middle.
func slow(t *testing.T) string {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "slow.yaml")
	model := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 512})
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: slow}
spec: {template: {metadata: {annotations: {rouse.dev/model: %s, rouse.dev/memory: 256Mi}}, spec: {containers: [{image: a, args: [--threads=1]}]}}}
`, model), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// TestStreamsOutliveTheirInstance kills the source of a stream, runtime or function, in the middle: the client gets the
// same text as without.
func TestStreamsOutliveTheirInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	manifest := slow(t)
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

// drawn matches an answer's times, its ids, and the number of cached tokens of its prompt.
var drawn = regexp.MustCompile(`"(created_at|created|completed_at|[a-z_]+_duration|input_tokens|cache_read_input_tokens|cached_tokens)":("[^"]*"|\d+)|"[a-z]*(_|-)?[A-Z0-9]{26}(_\d+)?"`)

// streamOf reads a whole stream and calls seen behind each of its lines. Times and ids are left out.
func streamOf(t *testing.T, url, path, body string, seen func(n int)) (text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, n := bufio.NewReader(resp.Body), 0
	for {
		line, err := lines.ReadString('\n')
		if line != "\n" && !strings.HasPrefix(line, ":") && !strings.Contains(line, "ping") {
			text += drawn.ReplaceAllString(line, `"$1":0`)
			n++
			seen(n)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", path, err)
			}
			return text
		}
	}
}

// TestTranslatedStreamsOutliveTheirInstance is TestStreamsOutliveTheirInstance for the APIs that the function translates.
func TestTranslatedStreamsOutliveTheirInstance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	manifest := slow(t)
	p := newServer(t, "-f", manifest)
	for path, test := range map[string]struct { // a blank ends the path
		body string
		at   []int // lines behind which the runtime is killed; 0: the half
	}{
		"/v1/messages":              {`{"model":"slow","max_tokens":64,"stream":true,"temperature":0,"messages":[{"role":"user","content":"go on"}]}`, []int{1, 0}},
		"/v1/responses":             {`{"model":"slow","max_output_tokens":64,"stream":true,"temperature":0,"input":"go on"}`, []int{0}},
		"/v1/responses with scores": {`{"model":"slow","max_output_tokens":64,"stream":true,"temperature":1,"seed":2,"input":"go on","include":["message.output_text.logprobs"],"top_logprobs":2}`, []int{0}},
		"/api/chat":                 {`{"model":"slow","options":{"num_predict":64,"temperature":0},"messages":[{"role":"user","content":"go on"}]}`, []int{0}},
		"/api/generate":             {`{"model":"slow","options":{"num_predict":64,"temperature":1,"seed":4},"prompt":"go on"}`, []int{5}},
	} {
		body := test.body
		path, _, _ := strings.Cut(path, " ")
		want := streamOf(t, p.server.url, path, body, func(int) {})
		all := strings.Count(want, "\n")
		for _, at := range test.at {
			if at == 0 {
				at = all / 2
			}
			got := streamOf(t, p.server.url, path, body, func(n int) {
				if n != at {
					return
				}
				i, err := p.instanceNow("slow")
				if err != nil {
					t.Error(err)
					return
				}
				_ = syscall.Kill(i.PID, syscall.SIGKILL)
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s, killed behind line %d of %d (-undisturbed +killed):\n%s", path, at, all, diff)
			}
		}
	}
	if n := strings.Count(p.server.output(), `"answer cut, and goes on elsewhere"`); n < 2 {
		t.Errorf("%d of 6 streams were cut: the others had been generated before the kills", n)
	}
}
