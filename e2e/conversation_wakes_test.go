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
	model := infertest.File(t, infertest.Spec{Dim: 256, Layers: 12, Vocab: 2000, Context: 2048})
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
	both := func(prompts [2]string) (at [2]string) { // at once: an instance takes one at a time, and answers far longer than the other one needs to wake
		var clients sync.WaitGroup
		for n, prompt := range prompts {
			clients.Go(func() { _, _, at[n] = ask(prompt, 600) })
		}
		clients.Wait()
		return at
	}
	both([2]string{"one", "other"}) // for the second instance to come
	// On a machine that does much else the activator may not wait for an answer of the autoscaler: then there is another try, with other conversations.
	for round := range 5 {
		said := [2]string{strings.Repeat(fmt.Sprintf("what one says in round %d. ", round), 60), strings.Repeat(fmt.Sprintf("and the other in round %d. ", round), 60)}
		at, right, was, all := both(said), true, 0, 0
		for n := range said {
			if _, err := p.rouse("sleep", "m"); err != nil {
				t.Fatal(err)
			}
			read, cached, instance := ask(said[n]+"and so on", 4)
			was, all, right = was+cached, all+read, right && instance == at[n]
		}
		t.Logf("round %d: %d of %d tokens of prompts were there after a wake", round, was, all)
		if right && at[0] != at[1] && was > all*3/4 {
			return
		}
	}
	t.Error("no two conversations were each at the instance that was woken")
}
