package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// TestWakesWhereTheConversationIs: two instances of a function sleep, each with a conversation. The next turn of either wakes the one that has it, and is not
// computed again.
func TestWakesWhereTheConversationIs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	manifest := filepath.Join(t.TempDir(), "m.yaml")
	model := infertest.File(t, infertest.Spec{Context: 2048})
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: m}
spec: {template: {metadata: {annotations: {rouse.dev/model: %s, rouse.dev/memory: 64Mi, autoscaling.knative.dev/max-scale: "2"}}, spec: {containerConcurrency: 1, containers: [{image: a, args: [--threads=1]}]}}}
`, model), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newServer(t, "-f", manifest)
	ask := func(prompt string, tokens int) (read, cached int, instance string) {
		body := fmt.Sprintf(`{"model":"m","prompt":%q,"temperature":0,"ignore_eos":true,"max_tokens":%d}`, prompt, tokens)
		resp, err := http.Post(p.server.url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, 0, ""
		}
		defer resp.Body.Close()
		var answer struct {
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s, %v", resp.Status, err)
		}
		return answer.Usage.Prompt, answer.Usage.Details.Cached, resp.Header.Get("X-Rouse-Instance")
	}
	// Both at once, as an instance takes one at a time. The first time it is something else, for the second instance to come.
	said := [2]string{strings.Repeat("what one of them has said. ", 60), strings.Repeat("and the other one's words. ", 60)}
	var at [2]string
	for _, prompts := range [][2]string{{"one", "other"}, said} {
		var both sync.WaitGroup
		for n := range said {
			both.Go(func() { _, _, at[n] = ask(prompts[n], 600) })
		}
		both.Wait()
	}
	if at[0] == at[1] || at[0] == "" {
		t.Fatalf("the conversations are at %q, want two instances", at)
	}
	was, all := 0, 0
	for turn, n := range []int{0, 1, 1, 0, 1, 0} {
		if _, err := p.rouse("sleep", "m"); err != nil {
			t.Fatal(err)
		}
		said[n] += fmt.Sprintf("turn %d. ", turn)
		read, cached, instance := ask(said[n], 4)
		if instance != at[n] || cached < read*3/4 {
			t.Errorf("turn %d: %d of %d tokens were there, at %s; want %s", turn, cached, read, instance, at[n])
		}
		was, all = was+cached, all+read
	}
	t.Logf("%d of %d tokens of prompts were there after a wake", was, all)
}
