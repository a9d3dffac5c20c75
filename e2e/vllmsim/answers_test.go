package vllmsim

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// asked are the bodies that a path is asked with; one that is not here is asked with an empty object. Each POST is also asked with what is no JSON.
var asked = func() map[string][]string {
	const chat, text = `{"model":"m","max_tokens":3,"messages":[{"role":"user","content":"hello"}]`, `{"model":"m","max_tokens":3,"prompt":"hello"`
	const usage = `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`
	chats := []string{chat + `}`, chat + usage + `}`, chat + `,"logprobs":true,"top_logprobs":2,"return_token_ids":true}`, chat + usage + `,"logprobs":true,"return_token_ids":true}`, strings.Replace(chat, `"m"`, `"nope"`, 1) + `}`}
	texts := []string{text + `}`, text + usage + `}`, text + `,"logprobs":2,"return_token_ids":true}`, text + usage + `,"logprobs":1,"return_token_ids":true}`}
	native := []string{`{"prompt":"hello","n_predict":3}`, `{"prompt":"hello","n_predict":3,"stream":true}`}
	response, message := `{"model":"m","input":"hello","max_output_tokens":3`, chat+`,"stop_sequences":["x"]`
	return map[string][]string{
		"/v1/chat/completions": chats, "/v1/completions": texts, "/completion": native,
		"/v1/responses": {response + `}`, response + `,"stream":true}`}, "/v1/messages": {message + `}`, message + `,"stream":true}`},
		"/detokenize": {`{"tokens":[97]}`}, "/collective_rpc": {`{"method":"reload_weights"}`},
		"/v1/load_lora_adapter": {`{"lora_name":"b","lora_path":"FOLDER"}`}, "/v1/unload_lora_adapter": {`{"lora_name":"a"}`},
		"/load_lora_adapter": {`{"lora_name":"b","lora_path":"FOLDER"}`}, "/unload_lora_adapter": {`{"lora_name":"a"}`},
		"/lora-adapters": {`[{"id":0,"scale":1}]`},
	}
}()

// answered are the fields of the answers that the simulator of a surface gives on all of its paths, each of a server of its own.
func answered(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	if surface == RayServe || surface == ollama { // the one's application answers, the other is not simulated
		return all
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "adapter_config.json"), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Surface: surface, Names: []string{"m"}, Sleep: true, LoRA: true, RuntimeLoRA: true, DevMode: true, Metrics: true, Adapters: []Adapter{{Name: "a", Path: folder}}}
	for line := range understoodBySimulator(t, surface) {
		method, path, is := strings.Cut(strings.TrimPrefix(line, "path "), " ")
		if !is || !strings.HasPrefix(line, "path ") {
			continue
		}
		bodies := append(slices.Clone(asked[path]), `{}`)
		if method == http.MethodPost {
			bodies = append(bodies, `{`)
		}
		s := start(t, cfg)
		for k, body := range bodies {
			w := call(s, method, path, strings.ReplaceAll(body, "FOLDER", folder))
			if k < len(asked[path]) && w.Code != http.StatusOK && !strings.Contains(body, "nope") {
				t.Errorf("%s %s %s: status %d: %s", method, path, body, w.Code, w.Body)
			}
			for part := range strings.Lines(w.Body.String()) {
				var v any
				if part = strings.TrimPrefix(part, "data: "); json.Unmarshal([]byte(part), &v) == nil {
					members(v, func(name string) { all["answer "+name] = true })
				}
			}
		}
	}
	if len(all) < 35 {
		t.Errorf("%s: only %d fields were found", surface, len(all))
	}
	return all
}

// members calls back for each name in an answer, but for tokens.
func members(v any, see func(name string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			see(name)
			if name != "top_logprobs" {
				members(value, see)
			}
		}
	case []any:
		for _, value := range v {
			members(value, see)
		}
	}
}

// readFrom are the files that read answers of a server.
var readFrom = map[Surface][]string{
	VLLM:     {"runtime/client.go", "runtime/probe.go", "runtime/vllm.go", "runtime/sleepmode.go", "resume/ask.go", "resume/events.go"},
	SGLang:   {"runtime/client.go", "runtime/probe.go", "runtime/sglang.go"},
	LlamaCpp: {"runtime/client.go", "runtime/probe.go", "runtime/llamacpp.go"},
	ollama:   {"runtime/ollama.go", "runtime/ollamamake.go", "runtime/ollamarequest.go"},
}

// fieldsRead are the fields that Rouse reads of a server's answers, by the tags of its structs.
func fieldsRead(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range readFrom[surface] {
		literals(t, filepath.Join("..", "..", "functions", file), func(string) {}, func(tag string) {
			if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" {
				all["answer "+name] = true
			}
		})
	}
	if len(readFrom[surface]) > 0 && len(all) < 8 {
		t.Errorf("%s: only %d fields were found", surface, len(all))
	}
	return all
}

var aMetric = regexp.MustCompile(`\b(vllm|sglang|llamacpp):[a-z0-9]+_[a-z0-9_]*[a-z0-9]\b`)

// metricsRead are the metrics with a server's name in front that Rouse or its documents know.
func metricsRead(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	names, err := namesOfMetrics()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range names {
		if server, _, _ := strings.Cut(name, ":"); server == string(surface) {
			all["metric "+strings.TrimSuffix(name, "_total")] = true
		}
	}
	if least := map[Surface]int{VLLM: 20, SGLang: 12, LlamaCpp: 5}[surface]; len(all) < least {
		t.Errorf("%s: only %d metrics were found", surface, len(all))
	}
	return all
}

// namesOfMetrics finds them in all that is no test.
var namesOfMetrics = sync.OnceValues(func() (names []string, err error) {
	for _, folder := range []string{"activator", "api", "autoscaler", "cmd", "docs", "functions", "manifests"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d os.DirEntry, err error) error {
			if d != nil && d.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".md", ".yaml", ".json"}, filepath.Ext(path)) {
				return err
			}
			raw, err := os.ReadFile(path)
			names = append(names, aMetric.FindAllString(string(raw), -1)...)
			return err
		}))
	}
	return names, err
})
