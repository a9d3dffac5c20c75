package real

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const chat, text, responses, messages = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"

// vllmArgs are options of the function that chats.
const vllmArgs = `, --enable-prompt-tokens-details, --enable-auto-tool-choice, --tool-call-parser, hermes, --kv-events-config, '{"enable_kv_cache_events":true}', --max-loras, "1", --max-cpu-loras, "2"`

// vllmManifest declares a function on the small model that vllm.py makes. Its sleep mode is as the documents have it: on, though a CPU has none.
func vllmManifest(name, dir, args, annotations string) string {
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/runtime: vllm
        rouse.dev/model: %s/models/tiny
        rouse.dev/memory: 3Gi
        rouse.dev/sleep-after: 2h
        rouse.dev/start-timeout: 15m
        rouse.dev/hold-timeout: 15m
%s    spec:
      containers: [{image: vllm/vllm-openai, args: [--, --max-model-len, "2048", --max-num-seqs, "16", --dtype, float32, --enforce-eager%s]}]
---
`, name, dir, annotations, args)
}

// vllm is a real vLLM behind Rouse.
type vllm struct {
	*up
	front, direct client
	socket        string
}

// startVLLM starts `rouse up` with functions on vLLM.
func startVLLM(t *testing.T, dir, manifests string) *vllm {
	t.Helper()
	u := start(t, dir, manifests,
		"VLLM_CACHE_ROOT="+filepath.Join(dir, "cache"), "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_HOST_IP=127.0.0.1", "VLLM_NO_USAGE_STATS=1", "PYTHONHASHSEED=0", "HF_HUB_OFFLINE=1")
	return &vllm{up: u, front: u.front()}
}

// find finds where vLLM is reached past Rouse.
func (v *vllm) find() {
	v.t.Helper()
	v.socket = v.listening("vllm.sock")
	v.direct = v.past(v.socket)
}

// in is v for a part of its test.
func (v *vllm) in(t *testing.T) *vllm {
	of := *v.up
	of.t = t
	part := &vllm{&of, v.front, v.direct, v.socket}
	part.front.t, part.direct.t = t, t
	return part
}

// TestVLLM asks one real vLLM, over as few starts as there can be.
func TestVLLM(t *testing.T) {
	dir := installed(t, "vllm")
	v := startVLLM(t, dir, vllmManifest("tiny", dir, vllmArgs, "        rouse.dev/adapter-root: "+dir+"/models\n"))
	v.held(t)
	v.find()
	for _, part := range []struct {
		name string
		run  func(*vllm, *testing.T)
	}{
		{"Alike", (*vllm).alike}, {"Calls", (*vllm).calls}, {"Adapters", (*vllm).adapters}, {"Counts", (*vllm).counts}, {"Aborts", (*vllm).aborts}, {"Attached", (*vllm).attached},
		{"ServerKilled", (*vllm).serverKilled}, {"EngineKilled", (*vllm).engineKilled}, {"Stopped", (*vllm).stopped},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(v.in(t), t) })
	}
}

// TestVLLMEmbeddings asks a vLLM that makes embeddings of the same model.
func TestVLLMEmbeddings(t *testing.T) {
	dir := installed(t, "vllm")
	v := startVLLM(t, dir, vllmManifest("vectors", dir, ", --no-enable-sleep-mode, --runner, pooling, --convert, embed", ""))
	const path, body = "/v1/embeddings", `{"model":"vectors","input":["the model sleeps","and wakes"]}`
	got := v.front.ask(path, body)
	v.find()
	if diff := cmp.Diff(plain(t, v.direct.ask(path, body)), plain(t, got)); diff != "" {
		t.Errorf("embeddings (-vLLM +Rouse):\n%s", diff)
	}
	var a struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(got), &a); err != nil || len(a.Data) != 2 || len(a.Data[0].Embedding) != 128 || slices.Equal(a.Data[0].Embedding, a.Data[1].Embedding) {
		t.Errorf("%v: two vectors of 128 numbers are to be in %.300s", err, got)
	}
}

// held: requests that come before the start are held and answered, all of them, though vLLM refuses the sleep mode at first.
func (v *vllm) held(t *testing.T) {
	const body = `{"model":"tiny","max_tokens":8,"temperature":0,"messages":[{"role":"user","content":"hello"}]}`
	answers := make(chan string)
	for range 4 {
		go func() {
			status, answer, err := v.front.send(chat, body)
			if err != nil || status != 200 {
				answer = fmt.Sprintf("status %d, %v: %s", status, err, answer)
			}
			answers <- answer
		}()
	}
	var want map[string]any
	for range 4 {
		answer := <-answers
		got, _ := plain(t, answer).(map[string]any)
		if usage, is := got["usage"].(map[string]any); !is || usage["completion_tokens"] != 8.0 {
			t.Fatalf("a held request got %s", answer)
		}
		delete(got, "usage") // the cached tokens differ
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("two held requests: %s", diff)
		}
	}
	if i := v.instance("tiny"); i.State != "awake" || i.Restarts != 0 || !strings.Contains(i.Message, "no sleep mode") {
		t.Errorf("the state is %+v, want awake, no restart, and a word on the sleep mode", i)
	}
}

const (
	user   = `"messages":[{"role":"user","content":"the model sleeps and the request is held"}]`
	tool   = `{"type":"function","function":{"name":"weather","strict":true,"description":"the weather","parameters":{"type":"object","properties":{"unit":{"enum":["c","f"]},"days":{"enum":[1,2]}},"required":["unit","days"],"additionalProperties":false}}}`
	schema = `{"type":"object","properties":{"colour":{"enum":["red","green"]},"on":{"type":"boolean"}},"required":["colour","on"],"additionalProperties":false}`
	usage  = `,"stream_options":{"include_usage":true}`
)

// alike compares answers through Rouse with vLLM's own, except for ids, times and the model's name.
func (v *vllm) alike(t *testing.T) {
	for _, c := range []struct{ name, path, body, whole string }{
		{"chat", chat, user + `,"max_tokens":24`, usage},
		{"chat with log probabilities", chat, user + `,"max_tokens":6,"logprobs":true,"top_logprobs":2`, ""},
		{"text", text, `"prompt":"once","max_tokens":24`, usage},
		{"two texts", text, `"prompt":["once","twice"],"max_tokens":6`, ""},
		{"a stop", text, `"prompt":"once","max_tokens":24,"stop":["Z","z","q"]`, usage},
		{"response", responses, `"input":"hello","max_output_tokens":16,"store":false`, ""},
		{"message", messages, `"max_tokens":16,"system":"be brief",` + user, ""},
		{"a named tool", chat, user + `,"max_tokens":64,"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"weather"}}`, ""},
		{"any tool", chat, user + `,"max_tokens":96,"tools":[` + tool + `],"tool_choice":"required"`, ""},
		{"schema", chat, user + `,"max_tokens":64,"response_format":{"type":"json_schema","json_schema":{"name":"lamp","strict":true,"schema":` + schema + `}}`, ""},
		{"schema of a response", responses, `"input":"hello","max_output_tokens":64,"store":false,"text":{"format":{"type":"json_schema","name":"lamp","strict":true,"schema":` + schema + `}}`, ""},
	} {
		body := `{"model":"tiny","temperature":0,` + c.body
		v.direct.ask(c.path, body+`}`) // so that both find the same in the cache
		if diff := cmp.Diff(plain(t, v.direct.ask(c.path, body+`}`)), plain(t, v.front.ask(c.path, body+`}`))); diff != "" {
			t.Errorf("%s (-vLLM +Rouse):\n%s", c.name, diff)
		}
		body += `,"stream":true` + c.whole + `}`
		want, got := fold(v.events(t, v.direct, c.path, body)), fold(v.events(t, v.front, c.path, body))
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 4 {
			t.Errorf("%s as a stream of %d fields (-vLLM +Rouse):\n%s", c.name, len(want), diff)
		}
	}
}

// calls: what a client gets is a call of the tool, with arguments that fit.
func (v *vllm) calls(t *testing.T) {
	answer := v.front.ask(chat, `{"model":"tiny","temperature":0,`+user+`,"max_tokens":96,"tools":[`+tool+`],"tool_choice":"required"}`)
	var called struct {
		Choices []struct {
			Message struct {
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &called); err != nil || len(called.Choices) != 1 || len(called.Choices[0].Message.ToolCalls) == 0 {
		t.Fatalf("no tool is called: %v: %s", err, answer)
	}
	for _, call := range called.Choices[0].Message.ToolCalls {
		var args struct {
			Unit string
			Days int
		}
		if err := json.Unmarshal([]byte(call.Function.Arguments), &args); err != nil || call.Function.Name != "weather" || args.Days == 0 {
			t.Errorf("the call is %s(%s): %v", call.Function.Name, call.Function.Arguments, err)
		}
	}
}

// events returns the events of a stream, without the parts that differ between streams.
func (v *vllm) events(t *testing.T, c client, path, body string) []any {
	t.Helper()
	lines, err := c.stream(t.Context(), path, body, func(int) {})
	if err != nil {
		t.Fatalf("%s %s: %v", path, body, err)
	}
	events := make([]any, len(lines))
	for k, line := range lines {
		events[k] = plain(t, line)
	}
	return events
}

// said is the text that a model says, greedily.
func said(t *testing.T, c client, model string) string {
	t.Helper()
	var a struct {
		Model   string
		Choices []struct{ Text string }
	}
	answer := c.ask(text, fmt.Sprintf(`{"model":%q,"prompt":"the model sleeps","max_tokens":16,"temperature":0}`, model))
	if err := json.Unmarshal([]byte(answer), &a); err != nil || len(a.Choices) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}
	return a.Choices[0].Text
}

// adapters are loaded and unloaded while vLLM runs, one more than it has places for on the device.
func (v *vllm) adapters(t *testing.T) {
	base := said(t, v.front, "tiny")
	texts := map[string]string{"tiny": base}
	for _, name := range []string{"lora-a", "lora-b"} {
		v.rouse("adapters", "add", "tiny", name+"="+name)
		texts[name] = said(t, v.front, name)
	}
	if len(texts) != 3 || texts["lora-a"] == base || texts["lora-b"] == base || texts["lora-a"] == texts["lora-b"] {
		t.Errorf("base and adapters say %q", texts)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if got := said(t, v.front, name); got != texts[name] || said(t, v.direct, name) != got {
			t.Errorf("%s says %q, then %q, and directly %q", name, texts[name], got, said(t, v.direct, name))
		}
	}
	v.rouse("adapters", "rm", "tiny", "lora-b")
	const gone = `{"model":"lora-b","prompt":"a","max_tokens":1}`
	if status, answer, err := v.front.send(text, gone); err != nil || status != 404 {
		t.Errorf("an adapter that was removed answers %d, %v: %s", status, err, answer)
	}
	v.eventually("vLLM unloads the adapter", func() error {
		if status, _, err := v.direct.send(text, gone); err != nil || status != 404 {
			return fmt.Errorf("it answers %d, %w", status, err)
		}
		return nil
	})
}

// metric is a sum of vLLM's own metrics.
func (v *vllm) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	found := false
	for line := range strings.Lines(v.direct.ask("/metrics", "")) {
		if rest, is := strings.CutPrefix(line, name+"{"); is {
			_, number, _ := strings.Cut(rest, "} ")
			value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, found = sum+value, true
		}
	}
	if !found {
		t.Fatalf("vLLM has no metric %s", name)
	}
	return sum
}

// tokens are counts of requests, by Rouse for its tenants or by vLLM.
type tokens struct {
	Requests int64
	Input    int64 `json:"inputTokens"`
	Cached   int64 `json:"cachedTokens"`
	Output   int64 `json:"outputTokens"`
}

// used returns the function's usage in Rouse, once every request that was sent is counted.
func (v *vllm) used(t *testing.T) (sum tokens) {
	t.Helper()
	v.eventually("all requests are counted", func() error {
		var u struct {
			Rows []struct {
				Function string
				tokens
			}
		}
		if err := json.Unmarshal([]byte(v.rouse("usage", "-o", "json")), &u); err != nil {
			return err
		}
		sum = tokens{}
		for _, row := range u.Rows {
			if row.Function == "default/tiny" {
				sum = sum.plus(row.tokens, 1)
			}
		}
		if sent := v.front.sent.Load(); sum.Requests != sent {
			return fmt.Errorf("%d requests are counted, and %d were sent", sum.Requests, sent)
		}
		return nil
	})
	return sum
}

func (u tokens) plus(other tokens, sign int64) tokens {
	return tokens{u.Requests + sign*other.Requests, u.Input + sign*other.Input, u.Cached + sign*other.Cached, u.Output + sign*other.Output}
}

// counted returns vLLM's own counters, which include Rouse's probes.
func (v *vllm) counted(t *testing.T) tokens {
	t.Helper()
	return tokens{
		int64(v.metric(t, "vllm:request_success_total")), int64(v.metric(t, "vllm:prompt_tokens_total")),
		int64(v.metric(t, "vllm:prefix_cache_hits_total")), int64(v.metric(t, "vllm:generation_tokens_total")),
	}
}

// counts checks that tokens are counted as vLLM itself does, and that the content of its prefix cache is known to a
// block.
func (v *vllm) counts(t *testing.T) {
	size := v.block(t)
	used, counted, cached := v.used(t), v.counted(t), v.cached(t)
	prompt := strings.Repeat("a prompt that nobody has sent before. ", 12) // a token is a byte
	const twice, more = 2, 20
	for range twice {
		v.front.ask(text, fmt.Sprintf(`{"model":"tiny","prompt":%q,"max_tokens":%d,"temperature":0}`, prompt, more))
	}
	stored := int64(len(prompt)+more-1) / size * size // of the last token nothing is computed
	v.eventually("Rouse knows what the cache has", func() error {
		if now := v.cached(t); now-cached != stored {
			return fmt.Errorf("it says %d tokens more, want %d", now-cached, stored)
		}
		return nil
	})
	for _, c := range []struct{ path, body string }{
		{chat, `{"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"count me"}]}`},
		{responses, `{"model":"tiny","max_output_tokens":9,"store":false,"input":"count me too"}`},
		{messages, `{"model":"tiny","max_tokens":9,"messages":[{"role":"user","content":"and me"}]}`},
		{chat, `{"model":"tiny","max_tokens":9,"n":2,"messages":[{"role":"user","content":"and both of us"}]}`},
	} {
		v.front.ask(c.path, c.body)
		// The client does not ask for the usage of a stream, and gets none.
		events, err := v.front.stream(t.Context(), c.path, strings.Replace(c.body, "{", `{"stream":true,`, 1), func(int) {})
		if got := strings.Join(events, "\n"); err != nil || c.path == chat && (strings.Contains(got, `"usage"`) || !strings.Contains(got, `"system_fingerprint"`)) {
			t.Errorf("%v: %s", err, got)
		}
	}
	ours, theirs := v.used(t).plus(used, -1), v.counted(t).plus(counted, -1)
	probes := theirs.Requests - ours.Requests // of one token each, and one token back
	if theirs = theirs.plus(tokens{probes, probes, 0, probes}, -1); ours != theirs {
		t.Errorf("Rouse has counted %+v, and vLLM %+v beside %d probes", ours, theirs, probes)
	}
}

// block is how many tokens a block of vLLM's prefix cache has.
func (v *vllm) block(t *testing.T) int64 {
	t.Helper()
	_, rest, found := strings.Cut(v.direct.ask("/metrics", ""), `block_size="`)
	number, _, _ := strings.Cut(rest, `"`)
	size, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil {
		t.Fatalf("vLLM does not say how large a block is: %v", err)
	}
	return size
}

// cached is how many tokens the prefix cache has, as Rouse says. A request makes it look.
func (v *vllm) cached(t *testing.T) int64 {
	t.Helper()
	v.front.ask(text, fmt.Sprintf(`{"model":"tiny","prompt":%q,"max_tokens":1}`, strings.Repeat("a", 256))) // more than a block
	var i instance
	before := int64(-1)
	v.eventually("what the cache has is known, and stays the same", func() error { // its events come after the answers
		if i = v.instance("tiny"); !i.Load.CacheKnown || i.Load.Cached != before {
			before = i.Load.Cached
			time.Sleep(2 * time.Second)
			return fmt.Errorf("the state is %+v", i)
		}
		return nil
	})
	return i.Load.Cached
}

// aborts checks that vLLM ends a stream whose client has left, and that its tokens are counted.
func (v *vllm) aborts(t *testing.T) {
	used, counted := v.used(t), v.counted(t)
	ctx, leave := context.WithCancel(t.Context())
	_, err := v.front.stream(ctx, chat, `{"model":"tiny","stream":true,"temperature":0,"max_tokens":1900,"messages":[{"role":"user","content":"go on"}]}`, func(n int) {
		if n == 20 {
			leave()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the stream ended before its client left: %v", err)
	}
	v.eventually("vLLM ends the request", func() error {
		if running := v.metric(t, "vllm:num_requests_running"); running > 0 {
			return fmt.Errorf("%v requests run", running)
		}
		return nil
	})
	if made := v.counted(t).plus(counted, -1).Output; made < 19 || made > 1800 {
		t.Errorf("vLLM made %d tokens after the client had got 19: it did not end the request", made)
	}
	if u := v.used(t).plus(used, -1); u.Requests != 1 || u.Input == 0 || u.Output < 19 || u.Output > 1800 {
		t.Errorf("of the client who left is counted %+v", u)
	}
}

// attached has a second function reach the same vLLM. It did not start that server and does not stop it.
func (v *vllm) attached(t *testing.T) {
	file := filepath.Join(t.TempDir(), "attached.yaml")
	manifest := fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: attached}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/runtime-endpoint: "unix:%s", rouse.dev/memory: 1Mi}}
    spec: {containers: [{image: vllm/vllm-openai}]}
`, v.socket)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	v.rouse("apply", "-f", file)
	if want, got := said(t, v.direct, "tiny"), said(t, v.front, "attached"); got != want {
		t.Errorf("attached it says %q, want %q", got, want)
	}
	cmd := exec.Command(filepath.Join(bin, "rouse"), "sleep", "attached")
	cmd.Env = v.env()
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no sleep mode") {
		t.Errorf("a sleep of what can't sleep says %v: %s", err, out)
	}
	if want, got := said(t, v.direct, "tiny"), said(t, v.front, "attached"); got != want {
		t.Errorf("after that it says %q, want %q", got, want)
	}
	v.rouse("rm", "attached")
	if said(t, v.direct, "tiny") == "" {
		t.Error("vLLM does not live on")
	}
}

// cut is a stream in whose middle vLLM is killed: it is the same as one that nothing disturbs.
func (v *vllm) cut(t *testing.T, kill func()) {
	const body = `{"model":"tiny","stream":true,"temperature":0,"max_tokens":400,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"tell me more"}]}`
	want, before := v.events(t, v.front, chat, body), v.instance("tiny").Restarts
	lines, err := v.front.stream(t.Context(), chat, body, func(n int) {
		if n == 20 {
			kill()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	content := func(events []any) (all string, usage any) {
		for _, e := range events {
			event, is := e.(map[string]any)
			if !is {
				continue
			}
			if event["usage"] != nil {
				usage = event["usage"]
				delete(usage.(map[string]any), "prompt_tokens_details") // the cache of the new one is empty
			}
			if event["error"] != nil {
				t.Errorf("the stream ends with %v", event["error"])
			}
			choices, _ := event["choices"].([]any)
			for _, c := range choices {
				delta, _ := c.(map[string]any)["delta"].(map[string]any)
				part, _ := delta["content"].(string)
				all += part
			}
		}
		return all, usage
	}
	got := make([]any, len(lines))
	for k, line := range lines {
		got[k] = plain(t, line)
	}
	wantText, wantUsage := content(want)
	gotText, gotUsage := content(got)
	if diff := cmp.Diff([]any{wantText, wantUsage}, []any{gotText, gotUsage}); diff != "" || len(wantText) < 300 {
		t.Errorf("a stream of %d characters (-undisturbed +killed):\n%s", len(wantText), diff)
	}
	v.eventually("the kill is one restart", func() error { // the whole stream may have been on its way
		if i := v.instance("tiny"); i.Restarts != before+1 {
			return fmt.Errorf("before it there were %d, now: %+v", before, i)
		}
		return nil
	})
}

func (v *vllm) serverKilled(t *testing.T) {
	v.cut(t, func() { _ = syscall.Kill(v.instance("tiny").PID, syscall.SIGKILL) })
}

func (v *vllm) engineKilled(t *testing.T) {
	v.cut(t, func() {
		pids := v.processes("VLLM::EngineCore")
		if len(pids) == 0 {
			t.Error("there is no EngineCore to kill")
		}
		for pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// stopped: without a sleep mode a sleep ends vLLM, all of it, and the next request starts it again, without the option that it refuses.
func (v *vllm) stopped(t *testing.T) {
	want := said(t, v.front, "tiny")
	v.rouse("sleep", "tiny")
	if left := v.processes("vllm"); len(left) > 0 {
		t.Errorf("asleep, processes of vLLM are left: %v", left)
	}
	if i := v.instance("tiny"); i.State != "asleep" || i.PID != 0 || !strings.Contains(i.Message, "no sleep mode") {
		t.Errorf("the state is %+v, want asleep and a word on the sleep mode", i)
	}
	if got := said(t, v.front, "tiny"); got != want {
		t.Errorf("after the sleep it says %q, want %q", got, want)
	}
	if n := strings.Count(v.rouse("logs", "tiny"), "Sleep mode is not supported"); n > 1 {
		t.Errorf("vLLM was started with a sleep mode %d times", n)
	}
}
