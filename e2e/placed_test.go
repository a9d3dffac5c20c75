package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// elsewhere is a function that a front door has created in a cluster, and removed where it has been unloaded for a second.
const elsewhere = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec: {template: {metadata: {annotations: {rouse.dev/model: pico, rouse.dev/memory: %s, rouse.dev/clusters: %q, rouse.dev/remove-after: 1s}}, spec: {containers: [{image: a}]}}}
`

// declare has a server take a manifest, and returns what it says.
func (p *place) declare(t *testing.T, manifest string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "function.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.rouse("apply", "-f", file)
}

// TestPlaced: a function that no cluster has is created in one that its manifest names and that accepts it, while its request waits; it
// is removed where it is not wanted any more.
func TestPlaced(t *testing.T) {
	t.Parallel()
	f := newFrontDoor(t, "desk", "rack", "shelf")
	f.join(t, "shelf") // it has pico of its own, and accepts nothing
	rack := f.join(t, "rack", "--accept-functions", "default/*")
	desk := f.join(t, "desk", "--accept-functions", "other/*")
	if out, err := f.declare(t, fmt.Sprintf(elsewhere, "far", "64Mi", "rouse.dev/cluster")); err != nil {
		t.Fatal(out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c := newOpenAI(f.place, option.WithMaxRetries(0))
	has := func(p *place) bool {
		out, err := p.rouse("ls")
		if err != nil {
			t.Fatal(out, err)
		}
		return strings.Contains(out, "far")
	}
	for range 2 {
		got, err := c.Chat.Completions.New(ctx, chat("far", "echo hello"))
		if err != nil || got.Choices[0].Message.Content != "hello" {
			t.Fatalf("%v, %v", got, err)
		}
		if !has(rack) || has(desk) {
			t.Errorf("in the rack: %t, on the desk: %t", has(rack), has(desk))
		}
		if out, err := rack.rouse("sleep", "--unload", "far"); err != nil {
			t.Fatal(out, err)
		}
		if err := retry(func() error {
			if has(rack) {
				return errors.New("it is still there")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	t.Run("nowhere", func(t *testing.T) {
		if out, err := f.declare(t, fmt.Sprintf(elsewhere, "large", "100Ti", "rouse.dev/cluster notin (shelf)")); err != nil {
			t.Fatal(out, err)
		}
		_, err := c.Chat.Completions.New(ctx, chat("large", "hello"))
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != 503 || e.Code != "no_capacity" {
			t.Fatalf("%v, want 503 no_capacity", err)
		}
		for _, want := range []string{"rack: it needs 100 TiB of host memory", "desk: it accepts no function of that name", "shelf: its labels are not"} {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%q, want %q in it", e.Message, want)
			}
		}
	})
	t.Run("a program", func(t *testing.T) {
		if out, err := f.declare(t, strings.Replace(fmt.Sprintf(elsewhere, "program", "64Mi", "rouse.dev/cluster"), "[{image: a}]", "[{image: a, command: [/bin/sh]}]", 1)); err != nil {
			t.Fatal(out, err)
		}
		_, err := c.Chat.Completions.New(ctx, chat("program", "hello"))
		var e *openai.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, "--accept-runtimes") {
			t.Errorf("%v, want it refused by the rack", err)
		}
	})
	t.Run("no front door", func(t *testing.T) {
		if out, err := rack.declare(t, fmt.Sprintf(elsewhere, "far", "64Mi", "a")); err == nil || !strings.Contains(out+err.Error(), "no front door") {
			t.Errorf("%s %v, want it refused", out, err)
		}
	})
	t.Run("removed", func(t *testing.T) {
		if out, err := f.rouse("rm", "far"); err != nil {
			t.Fatal(out, err)
		}
		_, err := c.Chat.Completions.New(ctx, chat("far", "hello"))
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != 404 {
			t.Errorf("%v, want 404", err)
		}
	})
}
