package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// TestEngineConversations checks that a conversation continues after sleeps of both levels and after a new start, and
// that its cached state is there. It must not be there for another tenant's salt, or after the model's file was
// changed.
func TestEngineConversations(t *testing.T) {
	inGo := []string{"--worker", "process", "--threads", "1"}
	t.Run("in Go", func(t *testing.T) { conversationsGoOn(t, inGo, nil) })
	t.Run("in torch", func(t *testing.T) {
		conversationsGoOn(t, []string{"--device", "cuda", "--python", withTorch(t), "--threads", "1"}, inGo)
	})
}

// conversationsGoOn has them with an engine of options how. Where there are options of other, an engine with these finds nothing in
// its files.
func conversationsGoOn(t *testing.T, how, other []string) {
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	model := infertest.File(t, infertest.Spec{Context: 1024})
	same := []string{"--model", model, "--name", "m", "--conversation-folder", t.TempDir()}
	args := slices.Concat(how, same)
	body := func(salt string) string {
		return fmt.Sprintf(`{"model":"m","prompt":%q,"temperature":0,"max_tokens":12,"ignore_eos":true,"cache_salt":%q}`,
			strings.Repeat("what was said before. ", 20), salt)
	}
	e := p.engine(t, args...)
	turn := func(salt string) (text string, cached int) {
		t.Helper()
		status, raw, err := e.post(t.Context(), "/v1/completions", body(salt))
		var answer struct {
			Choices []struct{ Text string }
			Usage   struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err == nil {
			err = json.Unmarshal(raw, &answer)
		}
		if err != nil || status != 200 || len(answer.Choices) != 1 {
			t.Fatalf("status %d, %v: %s", status, err, raw)
		}
		if c := answer.Usage.Details.Cached; c > 0 && c < answer.Usage.Prompt-16 {
			t.Errorf("%d tokens of %d were there: want none, or all whole blocks", c, answer.Usage.Prompt)
		}
		return answer.Choices[0].Text, answer.Usage.Details.Cached
	}
	control := func(path string) (kept int) {
		t.Helper()
		status, raw, err := e.post(t.Context(), path, "")
		var answer struct {
			Kept int `json:"kept_tokens"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &answer)
		}
		if err != nil || status != 200 {
			t.Fatalf("%s: status %d, %v: %s", path, status, err, raw)
		}
		return answer.Kept
	}
	want, _ := turn("a")
	expect := func(what string, found bool) {
		t.Helper()
		text, cached := turn("a")
		if text != want || cached > 0 != found {
			t.Errorf("%s: %q with %d tokens that were there; want %q", what, text, cached, want)
		}
	}
	expect("awake", true)
	if n := control("/sleep?level=1"); n < 16 {
		t.Errorf("it falls asleep with %d tokens kept", n)
	}
	if n, err := e.metric("rouse_engine_conversation_bytes"); err != nil || n <= 0 {
		t.Errorf("asleep, %v bytes are kept, %v", n, err)
	}
	control("/wake_up")
	expect("after level 1", true)
	kept := func() int {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(args[len(args)-1], "conversations", "*.kv"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	for kept() == 0 { // until the digest of the file is written
		turn("a")
		if n := control("/sleep?level=2"); n != 0 {
			t.Errorf("at level 2 %d tokens are kept", n)
		}
		control("/wake_up")
	}
	expect("after level 2", true)
	if _, cached := turn("b"); cached > 0 {
		t.Errorf("another salt finds %d tokens", cached)
	}
	e.stop(t)
	e = p.engine(t, args...)
	expect("after a start", true)
	if n, err := e.metric("rouse_engine_conversation_blocks_recalled_total"); err != nil || n <= 0 {
		t.Errorf("%v blocks are recalled, %v", n, err)
	}
	e.stop(t)
	if other != nil {
		e = p.engine(t, slices.Concat(other, same)...)
		if _, cached := turn("a"); cached > 0 {
			t.Errorf("another kind of worker finds %d tokens", cached)
		}
		e.stop(t)
	}
	raw, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-40] ^= 1 // a weight
	if err := os.WriteFile(model, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	e = p.engine(t, args...)
	if _, cached := turn("a"); cached > 0 {
		t.Errorf("other weights find %d tokens", cached)
	}
	e.stop(t)
}
