package runtime_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// recorded are the sections of testdata/vllm.txt by their names.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vllm.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(raw), "\n-- ")[1:] {
		name, text, found := strings.Cut(section, " --\n")
		if !found {
			t.Fatalf("a section has no name: %.100s", section)
		}
		sections[name] = strings.TrimSuffix(text, "\n")
	}
	return sections
}

// TestVLLMRecorded replays what a real vLLM without a sleep mode has said (e2e/real starts one): it is started, probed, measured and not put to sleep as it was then.
func TestVLLMRecorded(t *testing.T) {
	said := recorded(t)
	f := newFake(t)
	for name, text := range said {
		if word := strings.Fields(name); len(word) == 3 { // method, path, status
			status, err := strconv.Atoi(word[2])
			if err != nil {
				t.Fatal(err)
			}
			f.on(word[0]+" "+word[1], status, text+"\n")
		}
	}
	dir := t.TempDir()
	r, err := runtime.New(runtime.Config{
		Spec: api.Runtime{
			Kind: api.RuntimeVLLM, Model: "/models/tiny", AdapterRoot: "/models", Command: []string{program(t, "vllm"), "serve"},
			Args: []string{"--max-model-len", "2048", "--max-num-seqs", "16", "--dtype", "float32", "--enforce-eager", "--enable-prompt-tokens-details",
				"--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--kv-events-config", `{"enable_kv_cache_events":true}`, "--max-loras", "1", "--max-cpu-loras", "2"},
		},
		Model: "tiny", Aliases: []api.ModelName{"default/tiny"}, Dir: dir, Transport: http.DefaultTransport,
	})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.NoRoom(said["refusal"]) != "" || r.(runtime.Yielder).Yield(said["refusal"]) == "" {
		t.Error("the refusal of the sleep mode is not understood")
	}
	l, err := r.Launch("/models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(said["args"], strings.ReplaceAll(strings.Join(l.Args, "\n"), dir, "DIR")); diff != "" {
		t.Errorf("the command line (-recorded +now):\n%s", diff)
	}
	if diff := cmp.Diff(runtime.Traits{Adapts: true, Room: 2}, r.Traits()); diff != "" {
		t.Errorf("traits: %s", diff)
	}
	ctx, e := t.Context(), f.endpoint()
	if err := r.Probe(ctx, e); err != nil {
		t.Errorf("the probe: %v", err)
	}
	if answer, err := r.Canary(ctx, e); err != nil || answer.Text != "" {
		t.Errorf("the canary, of which no tokens are asked for: %+v, %v", answer, err)
	}
	signals, err := r.Signals(ctx, e)
	if err != nil {
		t.Error(err)
	}
	want := runtime.Signals{
		BlockTokens: 128, Blocks: 8192, Capacity: 1 << 20, Cached: -1, PromptTokens: 11516, GeneratedTokens: 3426, RunningAdapters: []string{}, WaitingAdapters: []string{}, MaxAdapters: 1,
		Times: map[string]runtime.Histogram{
			runtime.FirstToken:      {Count: 167, Sum: 24.544660329818726, Buckets: map[float64]uint64{0.5: 166}},
			runtime.WholeRequest:    {Count: 161, Sum: 54.89349722862244, Buckets: map[float64]uint64{0.5: 136}},
			runtime.PerPrefillToken: {Count: 11516, Sum: 24.544660329818726},
		},
	}
	if diff := cmp.Diff(want, signals); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
	if err := r.LoadAdapter(ctx, e, api.Adapter{Name: "lora-a", Path: "/models/lora-a"}); err != nil {
		t.Errorf("an adapter that is loaded already: %v", err)
	}
	if err := r.UnloadAdapter(ctx, e, "nope"); err != nil {
		t.Errorf("an adapter that is not there: %v", err)
	}
	if err := r.Sleep(ctx, e, api.Level1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a sleep: %v, want that there is none", err)
	}
	if r.(interface{ Dying(int, []byte) bool }).Dying(http.StatusInternalServerError, []byte(said["engine dead"])) == false {
		t.Error("that its engine has died is not understood")
	}
	f.on("POST /v1/completions", http.StatusInternalServerError, said["engine dead"])
	if err := errors.Join(r.Probe(ctx, e), r.Probe(ctx, e)); !runtime.Dying(err) {
		t.Errorf("the probe of one whose engine has died: %v", err)
	}
	if got := string(r.Failure("/v1/completions", http.StatusNotFound, []byte(said["unknown model"]))); !strings.Contains(got, `"code":"model_not_found"`) {
		t.Errorf("of an unknown model clients get %s", got)
	}
}
