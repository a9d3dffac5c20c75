package runtime_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/relay"
)

// recorded returns the sections of testdata/vllm.txt by their names.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "vllm.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range archive.Files {
		sections[f.Name] = strings.TrimSuffix(string(f.Data), "\n")
	}
	return sections
}

// TestVLLMRecorded replays a real vLLM without a sleep mode (e2e/real records it): it is started, probed, measured and not put to sleep
// as it was then.
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
	for _, output := range []string{said["start"], said["refusal"]} {
		if line := runtime.NoRoom(output); line != "" || len(output) < 1000 {
			t.Errorf("of its %d bytes of output this tells of too little memory: %q", len(output), line)
		}
	}
	if line := runtime.Hopeless(said["start"]); line != "" {
		t.Errorf("of a good start this is taken for a failure that lasts: %s", line)
	}
	if yield := r.(runtime.Yielder).Yield; yield(said["start"]) != "" || yield(said["refusal"]) == "" {
		t.Error("it does without a sleep mode after a good start, or not after the refusal")
	}
	l, err := r.Launch("/models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	now := strings.ReplaceAll(strings.Join(l.Args, "\n"), dir, "DIR")
	now = strings.Replace(now, "--allowed-media-domains\nmedia.invalid\n", "", 1) // newer than the record
	if diff := cmp.Diff(said["args"], now); diff != "" {
		t.Errorf("the command line (-recorded +now):\n%s", diff)
	}
	if diff := cmp.Diff(runtime.Traits{Reuses: true, Adapts: true, Room: 2}, r.Traits()); diff != "" {
		t.Errorf("traits: %s", diff)
	}
	ctx, e := t.Context(), f.endpoint()
	if err := r.Probe(ctx, e); err != nil {
		t.Errorf("the probe: %v", err)
	}
	if answer, err := r.Canary(ctx, e, ""); err != nil || answer.Text != "" {
		t.Errorf("the canary, of which no tokens are asked for: %+v, %v", answer, err)
	}
	rest, err := r.Signals(ctx, e)
	if err != nil {
		t.Error(err)
	}
	f.forget("GET /metrics").on("GET /metrics", http.StatusOK, said["later metrics"]+"\n")
	after, err := r.Signals(ctx, e)
	if err != nil {
		t.Error(err)
	}
	// In between came a text of one token and one, two chats of 35 and 9, and two texts of 400 and 40.
	const requests, prompts, generated = 5, 1 + 2*35 + 2*400, 1 + 2*9 + 2*40
	counts := map[string]uint64{runtime.PerPrefillToken: prompts}
	for _, name := range []string{runtime.FirstToken, runtime.PerRequestToken, runtime.WholeRequest, runtime.QueueTime, runtime.InferenceTime, runtime.PrefillTime, runtime.DecodeTime} {
		counts[name] = requests
	}
	for name, h := range after.Times {
		before := rest.Times[name]
		if n := counts[name]; n > 0 && h.Count-before.Count != n || h.Sum <= before.Sum || h.Count < before.Count {
			t.Errorf("%s was %+v and is %+v after %d more", name, before, h, n)
		}
		delete(counts, name)
	}
	if len(counts) > 0 || len(after.Times) != 10 {
		t.Errorf("of %d times these are missing: %v", len(after.Times), counts)
	}
	want := runtime.Signals{
		BlockTokens: 128, Blocks: 8192, Capacity: 1 << 20, Cached: -1, PromptTokens: rest.PromptTokens, GeneratedTokens: rest.GeneratedTokens,
		RunningAdapters: []string{}, WaitingAdapters: []string{}, MaxAdapters: 1, Times: rest.Times,
	}
	if diff := cmp.Diff(want, rest); diff != "" || rest.PromptTokens < 1 {
		t.Errorf("signals at rest (-want +got):\n%s", diff)
	}
	want.PromptTokens, want.GeneratedTokens, want.Times = want.PromptTokens+prompts, want.GeneratedTokens+generated, after.Times
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("signals after the requests (-want +got):\n%s", diff)
	}
	whole, stream := relay.Usage{}, relay.Usage{Style: api.StreamCompletion}
	whole.Read([]byte(said["POST /v1/chat/completions 200"]))
	stream.See([]byte(said["stream of POST /v1/chat/completions"]), 1)
	if whole.Prompt != 35 || whole.Generated != 9 || stream.Prompt != 35 || stream.Generated != 9 || stream.Events != 9 {
		t.Errorf("of a chat of 35 and 9 tokens the usage is %+v, as a stream %+v", whole, stream)
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
