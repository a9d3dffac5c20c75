package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// besideSlow returns the manifest of slow, whose streams take a while, and of a small function that needs its memory.
// concurrency is the limit of slow; 0: its default.
func besideSlow(t *testing.T, slow, small string, concurrency int) string {
	t.Helper()
	model := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 512})
	service := func(name, model, more string, concurrency int) []byte {
		return fmt.Appendf(nil, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec: {template: {metadata: {annotations: {rouse.dev/model: %s, rouse.dev/memory: 256Mi%s}}, spec: {containerConcurrency: %d, containers: [{image: a, args: [--threads=1]}]}}}
---
`, name, model, more, concurrency)
	}
	manifest := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(manifest, append(service("slow", model, slow, concurrency), service("urgent", "pico", small, 0)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return manifest
}

// askSmall has urgent answer.
func askSmall(url string) error {
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"urgent","prompt":"now","max_tokens":4}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("urgent: %s", resp.Status)
	}
	return nil
}

// replays has what the server decided decided again, by its record.
func replays(t *testing.T, p *place) {
	t.Helper()
	record := filepath.Join(t.TempDir(), "a.flight")
	if _, err := p.rouse("record", record); err != nil {
		t.Fatal(err)
	}
	if out, err := p.rouse("replay", record); err != nil || !strings.Contains(out, "each is decided again as it was, to the byte") {
		t.Errorf("replay: %v\n%s", err, out)
	}
}

// TestBusyVictimMoves: a request of a higher priority needs the memory of an instance in the middle of its streams. It gives way at once, the
// streams go on at its next turn as if nothing had been, and the autoscaler's record of it replays.
func TestBusyVictimMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p := newServer(t, "-f", besideSlow(t, `, rouse.dev/priority: "-1"`, `, rouse.dev/priority: "1"`, 0), "--memory", "300Mi")
	form := `{"model":"slow","prompt":"a stream that moves","stream":true,"ignore_eos":true,"temperature":1.1,"seed":3,"logprobs":1,"max_tokens":460}`
	want, whole := choicesOf(t, p.server.url, form, func(int) {})
	if !whole {
		t.Fatal("the undisturbed stream is not whole")
	}
	if err := askSmall(p.server.url); err != nil { // how long it takes to come is known from then on
		t.Fatal(err)
	}
	answered := make(chan error, 1) // of urgent, once
	got, whole := choicesOf(t, p.server.url, form, func(n int) {
		if n == 20 {
			go func() { answered <- askSmall(p.server.url) }()
		}
	})
	if diff := cmp.Diff(want, got); diff != "" || !whole {
		t.Errorf("whole %v (-undisturbed +moved):\n%s", whole, diff)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.server.output(), "it goes on elsewhere") {
		t.Error("the stream was not moved")
	}
	why, err := p.rouse("why", "slow")
	if err != nil || !strings.Contains(why, "moves its requests, or drains") {
		t.Errorf("why: %v\n%s", err, why)
	}
	replays(t, p)
}

// TestSurplusMoves has two instances that both stream, where one is enough, and another function of the same priority
// that needs its memory. One gives way at once, and its stream continues beside the stream of the other. Neither client
// sees a difference.
func TestSurplusMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p := newServer(t, "-f", besideSlow(t, `, autoscaling.knative.dev/max-scale: "2"`, "", 2), "--memory", "540Mi")
	form := func(n, tokens int) string {
		return fmt.Sprintf(`{"model":"slow","prompt":"stream %d of two instances","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":%d}`, n, tokens)
	}
	var want [2][]string
	for n := range want {
		var whole bool
		if want[n], whole = choicesOf(t, p.server.url, form(n, 300), func(int) {}); !whole {
			t.Fatal("the undisturbed stream is not whole")
		}
	}
	// Two requests fill the first instance, so that the third has a second one come. Then the first leaves: one would be enough.
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var streams sync.WaitGroup
	var got [2][]string
	begun := make(chan struct{}, 2) // one message of each of the first two streams
	read := func(ctx context.Context, n int, body string, seen func(n int)) {
		streams.Go(func() {
			choices, whole, err := readChoices(ctx, p.server.url, body, seen)
			if ctx.Err() != nil && !errors.Is(t.Context().Err(), ctx.Err()) {
				return // it has left
			}
			if err != nil || !whole {
				t.Errorf("stream %d: whole %v, %v", n, whole, err)
			}
			got[n] = choices
		})
	}
	first := func(n int) {
		if n == 1 {
			begun <- struct{}{}
		}
	}
	read(ctx, -1, form(9, 400), first)
	read(t.Context(), 0, form(0, 300), first)
	<-begun
	<-begun
	answered := make(chan error, 1) // of urgent, once
	read(t.Context(), 1, form(1, 300), func(n int) {
		switch n {
		case 1:
			leave()
		case 5:
			go func() { answered <- askSmall(p.server.url) }()
		}
	})
	streams.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-undisturbed +moved):\n%s", diff)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.server.output(), "it goes on elsewhere") {
		t.Errorf("no stream was moved:\n%s", p.server.output())
	}
	why, err := p.rouse("why", "slow")
	if err != nil || !strings.Contains(why, "2 awake or on the way, 1 needed; makes room for default/urgent") || !strings.Contains(why, "moves its requests, or drains") {
		t.Errorf("why: %v\n%s", err, why)
	}
	replays(t, p)
}
