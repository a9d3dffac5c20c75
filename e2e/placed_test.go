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
	t.Run("what is the operator's", func(t *testing.T) {
		for name, attack := range map[string]struct{ was, is, want string }{
			"program":     {"[{image: a}]", "[{image: a, command: [/bin/sh]}]", "no function with a command"},
			"interpreter": {"[{image: a}]", "[{image: a, args: [--device, cuda, --python, /bin/sh]}]", "no argument \"--python\""},
			"address":     {"[{image: a}]", "[{image: a, args: [--listen, '127.0.0.1:1']}]", "no argument \"--listen\""},
			"file":        {"rouse.dev/model: pico", "rouse.dev/model: /etc/passwd", "no function with the model /etc/passwd: its operator has to name it"},
			"missing":     {"rouse.dev/model: pico", "rouse.dev/model: /no/such", "no function with the model /no/such: its operator has to name it"},
			"url":         {"rouse.dev/model: pico", "rouse.dev/model: 'http://127.0.0.1:1/x'", "no function with the model"},
			"folder":      {"[{image: a}]", "[{image: a, args: [--conversation-folder, /tmp]}]", "no argument \"--conversation-folder\""},
			"priority":    {"rouse.dev/model: pico", "rouse.dev/model: pico, rouse.dev/priority: '1'", "rouse.dev/priority above 0"},
			"runtime":     {"rouse.dev/model: pico", "rouse.dev/runtime: vllm, rouse.dev/model: 'hf://a/b'", "--accept-runtimes has engine"},
		} {
			if out, err := f.declare(t, strings.Replace(fmt.Sprintf(elsewhere, name, "64Mi", "rouse.dev/cluster"), attack.was, attack.is, 1)); err != nil {
				t.Fatal(name, out, err)
			}
			_, err := c.Chat.Completions.New(ctx, chat(name, "hello"))
			var e *openai.Error
			if !errors.As(err, &e) || !strings.Contains(e.Message, attack.want) || strings.Contains(e.Message, "root:") {
				t.Errorf("%s: %v, want it refused by the rack with %q", name, err, attack.want)
			}
		}
	})
	t.Run("with options", func(t *testing.T) {
		if out, err := f.declare(t, strings.Replace(fmt.Sprintf(elsewhere, "optioned", "64Mi", "rouse.dev/cluster"), "[{image: a}]", "[{image: a, args: [--threads, '1', --max-model-len=256]}]", 1)); err != nil {
			t.Fatal(out, err)
		}
		if got, err := c.Chat.Completions.New(ctx, chat("optioned", "echo hello")); err != nil || got.Choices[0].Message.Content != "hello" {
			t.Errorf("%v, %v", got, err)
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
