package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// TestStoredNode stores responses with OpenAI's official JavaScript client: of the engine, for which they are translated, and of a runtime
// that has the API itself.
func TestStoredNode(t *testing.T) {
	t.Parallel()
	manifest := filepath.Join(t.TempDir(), "sim.yaml")
	if err := os.WriteFile(manifest, []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: sim}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/model: m/sim}}
    spec: {containers: [{image: vllm/vllm-openai, args: [--load, 10ms]}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	p := newServer(t, "--model", "pico", "--store", "store")
	runNode(ctx, t, "stored.mjs", p.server.url, "pico")
	p = newStrange(t, "-f", manifest, "--store", "store")
	runNode(ctx, t, "stored.mjs", p.server.url, "sim")
}

// asking asks for a response of the model that ships with Rouse.
func asking(text, previous string) responses.ResponseNewParams {
	q := responses.ResponseNewParams{Model: "pico", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}, Store: openai.Bool(true), Temperature: openai.Float(0)}
	if previous != "" {
		q.PreviousResponseID = openai.String(previous)
	}
	return q
}

// wantsNone expects that there is no response for a client.
func wantsNone(ctx context.Context, t *testing.T, c *openai.Client, id string) {
	t.Helper()
	var refused *openai.Error
	if _, err := c.Responses.Get(ctx, id, responses.ResponseGetParams{}); !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound {
		t.Errorf("%s: %v, want none", id, err)
	}
}

// TestStoredGo stores responses with OpenAI's official Go client, for two tenants, over a kill of the server.
func TestStoredGo(t *testing.T) {
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	key := map[string]string{}
	for _, name := range []string{"alice", "bob"} {
		out, err := p.rouse("keys", "create", "-f", filepath.Join(p.dir, "keys.yaml"), name, "--tenant", name)
		if err != nil {
			t.Fatal(err)
		}
		key[name] = strings.TrimSpace(out)
	}
	args := []string{"--model", "pico", "--store", "store", "--keys", "keys.yaml"}
	p.serve(t, args...)
	client := func(name string) *openai.Client {
		c := newOpenAI(p, option.WithAPIKey(key[name]))
		return &c
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	first, err := client("alice").Responses.New(ctx, asking("echo apple", ""))
	if err != nil {
		t.Fatal(err)
	}
	pending, err := client("alice").Responses.New(ctx, responses.ResponseNewParams{Model: "pico", Input: asking("echo plum", "").Input, Background: openai.Bool(true), Temperature: openai.Float(0)})
	_ = p.server.cmd.Process.Kill()
	if err != nil || pending.Status != responses.ResponseStatusQueued {
		t.Fatalf("in the background: %+v, %v", pending, err)
	}
	<-p.server.ended
	if err := p.start(args...); err != nil {
		t.Fatal(err)
	}
	c := client("alice")
	stream := c.Responses.NewStreaming(ctx, asking("echo pear", first.ID))
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
	}
	second := last.Response
	if stream.Err() != nil || last.Type != "response.completed" || second.OutputText() != "pear" || second.PreviousResponseID != first.ID {
		t.Fatalf("after the kill: %v, %s", stream.Err(), last.RawJSON())
	}
	pages := c.Responses.InputItems.ListAutoPaging(ctx, second.ID, responses.InputItemListParams{Limit: openai.Int(2)})
	n := 0
	for pages.Next() {
		n++
	}
	if pages.Err() != nil || n != 3 {
		t.Errorf("%d items were asked, %v; want 3", n, pages.Err())
	}
	var got *responses.Response
	err = retry(func() (err error) {
		if got, err = c.Responses.Get(ctx, pending.ID, responses.ResponseGetParams{}); err == nil && got.Status != responses.ResponseStatusCompleted {
			err = fmt.Errorf("it is %s", got.RawJSON())
		}
		return err
	})
	if err != nil || got.OutputText() != "plum" {
		t.Errorf("what was in the background at the kill: %v", err)
	}
	for _, id := range []string{first.ID, second.ID, pending.ID} {
		wantsNone(ctx, t, client("bob"), id)
		_ = client("bob").Responses.Delete(ctx, id)
	}
	var refused *openai.Error
	if _, err := client("bob").Responses.New(ctx, asking("x", first.ID)); !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Code != "previous_response_not_found" {
		t.Errorf("another tenant goes on: %v", err)
	}
	for _, id := range []string{first.ID, second.ID, pending.ID} {
		if err := c.Responses.Delete(ctx, id); err != nil {
			t.Errorf("delete: %v", err)
		}
		wantsNone(ctx, t, c, id)
	}
	if left, err := filepath.Glob(filepath.Join(p.dir, "store", "responses", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
