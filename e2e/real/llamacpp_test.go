package real

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLlamaCpp has a real llama.cpp serve the model that ships with Rouse, and be what Rouse's own engine is compared with.
func TestLlamaCpp(t *testing.T) {
	dir := installed(t, "llamacpp")
	pico, err := filepath.Abs("../../engine/pico")
	if err != nil {
		t.Fatal(err)
	}
	manifest := ""
	for _, f := range []struct{ name, runtime, adapters string }{
		{"tiny", "llamacpp", ""}, {"loras", "llamacpp", "rouse.dev/adapters: shout=" + pico + "/adapters/shout.gguf"}, {"own", "engine", ""},
	} {
		manifest += fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: %s}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/runtime: %s
        rouse.dev/model: %s/pico-q8_0.gguf
        %s
        rouse.dev/adapter-root: %[3]s
        rouse.dev/memory: 256Mi
        rouse.dev/sleep-after: 2h
        rouse.dev/start-timeout: 15m
        rouse.dev/hold-timeout: 15m
    spec: {containers: [{image: none}]}
---
`, f.name, f.runtime, pico, f.adapters)
	}
	u := start(t, dir, manifest)
	v := &vllm{up: u, front: u.front()}
	said(t, v.front, "tiny") // held for the start
	v.socket = v.listening("llama.sock")
	v.direct = v.past(v.socket)
	for _, part := range []struct {
		name string
		run  func(*vllm, *testing.T)
	}{
		{"Alike", (*vllm).alike},
		{"Killed", (*vllm).llamaKilled}, {"Slept", (*vllm).llamaSlept}, {"Adapters", (*vllm).llamaAdapters}, {"Witness", (*vllm).witness},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(v.in(t), t) })
	}
}

// llamaKilled: a stream that a kill cuts says so, and the next request is answered by a new process.
func (v *vllm) llamaKilled(t *testing.T) {
	want := said(t, v.front, "tiny")
	lines, err := v.front.stream(t.Context(), chat, `{"model":"tiny","stream":true,"temperature":0,"max_tokens":900,"ignore_eos":true,`+user+`}`, func(n int) {
		if n == 20 {
			_ = syscall.Kill(v.instance("tiny").PID, syscall.SIGKILL)
		}
	})
	if err != nil || len(lines) < 20 || !strings.Contains(lines[len(lines)-1], "stream_cut") {
		t.Errorf("a stream of %d events whose server is killed ends with %v and %q", len(lines), err, lines[max(0, len(lines)-1):])
	}
	if got := said(t, v.front, "tiny"); got != want {
		t.Errorf("started anew it says %q, want %q", got, want)
	}
	if i := v.instance("tiny"); i.Restarts != 1 || i.State != "awake" {
		t.Errorf("after the kill: %+v", i)
	}
}

// llamaSlept: a sleep ends the process, and the next request starts it again.
func (v *vllm) llamaSlept(t *testing.T) {
	want := said(t, v.front, "tiny")
	v.rouse("sleep", "tiny")
	if left := v.processes("llama-server"); len(left) > 0 {
		t.Errorf("asleep, there are still %v", left)
	}
	if got := said(t, v.front, "tiny"); got != want {
		t.Errorf("after a sleep it says %q, want %q", got, want)
	}
}

// llamaAdapters: the adapter is applied to those who name it and to nobody else, in every API that can.
func (v *vllm) llamaAdapters(t *testing.T) {
	const hello = `"temperature":0,"messages":[{"role":"user","content":"Who are you?"}]`
	for _, c := range []struct{ path, body string }{
		{chat, hello + `,"max_tokens":16`}, {responses, `"temperature":0,"input":"Who are you?","max_output_tokens":16,"store":false`},
		{text, `"prompt":"once","max_tokens":8,"temperature":0`},
	} {
		ask := func(model string) string {
			return words(t, v.front.ask(c.path, fmt.Sprintf(`{"model":%q,%s}`, model, c.body)))
		}
		base, without, shouted := ask("tiny"), ask("loras"), ask("shout")
		if base != without || base == shouted || shouted == "" {
			t.Errorf("%s: without adapters %q, with one that nobody names %q, by its name %q", c.path, base, without, shouted)
		}
	}
	const anthropic = `"max_tokens":16,` + hello
	if base, without := words(t, v.front.ask(messages, `{"model":"tiny",`+anthropic+`}`)), words(t, v.front.ask(messages, `{"model":"loras",`+anthropic+`}`)); base != without || base == "" {
		t.Errorf("%s: without adapters %q, with one that nobody names %q", messages, base, without)
	}
	if status, answer, err := v.front.send(messages, `{"model":"shout",`+anthropic+`}`); err != nil || status != 400 || !strings.Contains(answer, chat) {
		t.Errorf("%s of an adapter answers %d, %v: %s; want a word on where it can be had", messages, status, err, answer)
	}
}

// witness: tokens, prompts and greedy answers of Rouse's engine are those of llama.cpp.
func (v *vllm) witness(t *testing.T) {
	for _, prompt := range []string{"Who are you?", "echo hello world", "add 12 7", "reverse alpha beta gamma", "story cat boat", "échô\n 日本 🙂", "  two  spaces\tand a tab "} {
		quoted, _ := json.Marshal(prompt)
		var a, b struct{ Tokens []int }
		for of, from := range map[*struct{ Tokens []int }]string{
			&a: v.direct.ask("/tokenize", fmt.Sprintf(`{"content":%s,"add_special":true}`, quoted)),
			&b: v.front.ask("/tokenize", fmt.Sprintf(`{"model":"own","prompt":%s}`, quoted)),
		} {
			if err := json.Unmarshal([]byte(from), of); err != nil || len(of.Tokens) == 0 {
				t.Fatalf("%v: %s", err, from)
			}
		}
		if fmt.Sprint(a.Tokens) != fmt.Sprint(b.Tokens) {
			t.Errorf("tokens of %q are %v by llama.cpp and %v by the engine", prompt, a.Tokens, b.Tokens)
		}
		body := fmt.Sprintf(`,"temperature":0,"max_tokens":24,"messages":[{"role":"user","content":%s}]}`, quoted)
		if want, got := words(t, v.front.ask(chat, `{"model":"tiny"`+body)), words(t, v.front.ask(chat, `{"model":"own"`+body)); got != want || want == "" {
			t.Errorf("to %q llama.cpp says %q, and the engine %q", prompt, want, got)
		}
	}
}

// words is the text of an answer of any API.
func words(t *testing.T, answer string) (all string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	var in func(any)
	in = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range []string{"choices", "output", "message", "content", "text"} {
				if s, is := v[key].(string); is {
					all += s
				} else {
					in(v[key])
				}
			}
		case []any:
			for _, e := range v {
				in(e)
			}
		}
	}
	in(v)
	return all
}
