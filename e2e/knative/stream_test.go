package knative

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// slowly makes a function that generates one word per step.
func slowly(t *testing.T, name, flags string, annotations []string, more ...string) *function {
	t.Helper()
	return create(t, name, "dev.local/rouse-vllmsim:v1",
		append([]string{"rouse.dev/runtime=vllm", "rouse.dev/model=sim/llama-8b", "rouse.dev/sleep-after=0", "rouse.dev/memory=64Mi"}, annotations...),
		append(more, "--env", "VLLMSIM_FLAGS=--load-time 0 "+flags)...)
}

// told is the part of a streamed completion that a client has got so far.
type told struct {
	words int
	end   string // "[DONE]", or the code of the error that ended it; empty: it is not over
}

// completion streams the given number of words, at url with the headers that direct sends. It calls each after every
// piece. The error says how the stream ended without an event.
func completion(ctx context.Context, f *function, url string, words int, each func(told)) error {
	body, err := json.Marshal(map[string]any{"model": f.name, "prompt": "hello", "stream": true, "ignore_eos": true, "max_tokens": words})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	asIngress(req, f)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var refused struct{ Error struct{ Code string } }
		if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil {
			return fmt.Errorf("status %d: %w", resp.StatusCode, err)
		}
		each(told{end: fmt.Sprintf("%d %s", resp.StatusCode, refused.Error.Code)})
		return nil
	}
	var got told
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		var chunk struct {
			Choices []struct{ Text string }
			Error   *struct{ Code string }
		}
		switch {
		case !found:
			continue
		case data == "[DONE]":
			got.end = data
		case json.Unmarshal([]byte(data), &chunk) != nil:
			return fmt.Errorf("after %d words comes %q, which is no event", got.words, data)
		case chunk.Error != nil:
			got.end = chunk.Error.Code
		case len(chunk.Choices) > 0 && chunk.Choices[0].Text != "":
			got.words++
		}
		each(got)
		if got.end != "" {
			return nil
		}
	}
	return fmt.Errorf("after %d words the stream ends without a last event", got.words)
}

// whole streams the given number of words through the ingress and returns the result.
func whole(f *function, words int) (last told, err error) {
	err = completion(f.t.Context(), f, f.c.IngressURL, words, func(now told) { last = now })
	return last, err
}

// TestStreamsOutliveTheServicesTimeout streams for far longer than timeoutSeconds: the annotation goes before it.
func TestStreamsOutliveTheServicesTimeout(t *testing.T) {
	parallel(t)
	f := slowly(t, "stream-long", "--step-time 100ms", []string{"rouse.dev/request-timeout=0"}, "--timeout", "3")
	if got, err := whole(f, 120); err != nil || got.words < 119 || got.end != "[DONE]" {
		t.Errorf("12 s of a stream with timeoutSeconds 3: %+v, %v; want 120 words and [DONE]", got, err)
	}
}

// TestStreamsEndByTheirLimits sets each of Rouse's limits, and Knative's; a stream that has begun ends with an event.
func TestStreamsEndByTheirLimits(t *testing.T) {
	parallel(t)
	for _, tt := range []struct {
		name, limit string
		more        []string
		step, end   string
	}{
		{"limit-service", "", []string{"--timeout", "6"}, "200ms", "request_timeout"},
		{"limit-all", "rouse.dev/request-timeout=6s", nil, "200ms", "request_timeout"},
		{"limit-first", "rouse.dev/first-byte-timeout=1s", nil, "5s", "504 request_timeout"},
		{"limit-idle", "rouse.dev/idle-timeout=1s", nil, "3s", "request_timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var limits []string
			if tt.limit != "" {
				limits = []string{tt.limit}
			}
			f := slowly(t, tt.name, "--step-time "+tt.step, limits, tt.more...)
			warm, err := call(t.Context(), f.c, f.host(), "/v1/models", nil) // the stream is to begin with an answer, not with comments
			if err != nil || warm.status != http.StatusOK {
				t.Fatalf("wake %s: %d %s, %v", f.name, warm.status, warm.body, err)
			}
			begin := time.Now()
			if got, err := whole(f, 100); err != nil || got.end != tt.end {
				t.Errorf("a stream ends after %v with %+v, %v; want it to end by %s with %q", time.Since(begin), got, err, tt.name, tt.end)
			}
		})
	}
}

// begun starts a stream and returns when its first word has come. The channel gets
// an error that says how it ended, unless it was whole.
func begun(ctx context.Context, f *function, url string, words int) <-chan error {
	f.t.Helper()
	first, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		var last told
		err := completion(ctx, f, url, words, func(now told) {
			if last = now; now.words == 1 {
				first <- struct{}{}
			}
		})
		if err == nil && (last.end != "[DONE]" || last.words != words) {
			err = fmt.Errorf("it ends with %+v", last)
		}
		ended <- err
	}()
	select {
	case <-first:
	case err := <-ended:
		f.t.Fatalf("a stream of %s: %v before its first word", f.name, err)
	}
	return ended
}

// TestStreamsOutliveTheirPodsDeletion deletes the pod of a stream: the stream continues to its end, and new requests go
// to another pod.
func TestStreamsOutliveTheirPodsDeletion(t *testing.T) {
	parallel(t)
	f := slowly(t, "stream-drained", "--step-time 200ms", nil)
	ended := begun(t.Context(), f, f.c.IngressURL, 60)
	if _, err := f.c.Kubectl(t.Context(), "delete", "pod", f.pods()[0].Metadata.Name, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	if got, err := whole(f, 3); err != nil || got.end != "[DONE]" {
		t.Errorf("a request while the pod drains: %+v, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream of the deleted pod: %v", err)
	}
}

// streamsOutliveTheirActivator deletes the activator of a stream: the stream continues to its end, past the time in
// which the others learn of it.
func streamsOutliveTheirActivator(t *testing.T) {
	rouse(t) // whose pods can be reached from here
	f := slowly(t, "stream-through", "--step-time 500ms", nil)
	victim := pods(t, f.c, "app=rouse-activator", "knative-serving")[0]
	ended := begun(t.Context(), f, "http://"+victim.Status.PodIP+":8012", 110)
	if _, err := f.c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", victim.Metadata.Name, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the stream through the deleted activator: %v", err)
	}
}

// TestAClientThatLeavesStopsTheGeneration leaves a stream of two minutes to an engine that
// takes one request at a time: the next one is not kept waiting.
func TestAClientThatLeavesStopsTheGeneration(t *testing.T) {
	parallel(t)
	f := slowly(t, "stream-left", "--step-time 300ms --max-num-seqs 1", nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := begun(ctx, f, f.c.IngressURL, 400)
	leave()
	<-ended
	begin := time.Now()
	if got, err := whole(f, 3); err != nil || got.end != "[DONE]" || time.Since(begin) > 30*time.Second {
		t.Errorf("after a client has left, the next is answered after %v with %+v, %v; want it within 30 s", time.Since(begin), got, err)
	}
}
