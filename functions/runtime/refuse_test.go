package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Settings that a function must not make are refused with advice.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		spec api.Runtime
		want []string
	}{
		"vLLM's port":          {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--max-model-len", "1", "--port=8000"}}, []string{"vllm", "--port", "remove it"}},
		"vLLM's names":         {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--served_model_name", "y"}}, []string{"--served-model-name", "aliases"}},
		"vLLM's key":           {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Env: []string{"VLLM_API_KEY=secret"}}, []string{"VLLM_API_KEY", "no key"}},
		"vLLM's model":         {api.Runtime{Kind: api.RuntimeVLLM}, []string{"no model", "hf://"}},
		"SGLang's model":       {api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Args: []string{"--model-path", "y"}}, []string{"--model-path", "model reference"}},
		"SGLang without one":   {api.Runtime{Kind: api.RuntimeSGLang}, []string{"no model"}},
		"SGLang's adapters":    {api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Args: []string{"--lora-paths", "a=b"}}, []string{"declare the adapters"}},
		"Ollama's host":        {api.Runtime{Kind: api.RuntimeOllama, Model: "x", Env: []string{"OLLAMA_HOST=0.0.0.0"}}, []string{"OLLAMA_HOST", "remove it"}},
		"Ollama's options":     {api.Runtime{Kind: api.RuntimeOllama, Model: "x", Args: []string{"--verbose"}}, []string{"takes no options", "Modelfile"}},
		"Ollama's model":       {api.Runtime{Kind: api.RuntimeOllama}, []string{"no model", "qwen2.5:0.5b"}},
		"Ollama's adapters":    {api.Runtime{Kind: api.RuntimeOllama, Model: "x", Adapters: []api.Adapter{{Name: "a"}}}, []string{"ADAPTER"}},
		"llama.cpp's model":    {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"-m", "y"}}, []string{"-m", "model reference"}},
		"llama.cpp's tools":    {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"--tools", "all"}}, []string{"--tools"}},
		"llama.cpp's agent":    {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"--mcp-servers-config", "x.json"}}, []string{"--mcp-servers-config", "run programs"}},
		"llama.cpp's variable": {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Env: []string{"LLAMA_ARG_MODELS_DIR=/x"}}, []string{"LLAMA_ARG_MODELS_DIR", "one model"}},
		"llama.cpp's sleep":    {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"--sleep-idle-seconds=60"}}, []string{"--sleep-idle-seconds", "idle times"}},
		"llama.cpp's files":    {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: "x", Args: []string{"--media-path", "/"}}, []string{"--media-path", "data: URLs"}},
		"vLLM's tools":         {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--tool-server", "demo"}}, []string{"--tool-server", "run programs"}},
		"vLLM's snapshots":     {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--snapshot-config={}"}}, []string{"--snapshot-config", "Unix sockets"}},
		"vLLM's certificate":   {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--ssl-keyfile", "x"}}, []string{"--ssl-keyfile", "without TLS"}},
		"vLLM's media":         {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Args: []string{"--allowed-media-domains", "a.example"}}, []string{"--allowed-media-domains", "rouse.dev/media-hosts"}},
		"vLLM's redirects":     {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Env: []string{"VLLM_MEDIA_URL_ALLOW_REDIRECTS=1"}}, []string{"VLLM_MEDIA_URL_ALLOW_REDIRECTS", "nobody has named"}},
		"SGLang's tools":       {api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Args: []string{"--tool-server", "demo"}}, []string{"--tool-server", "run programs"}},
		"the engine's address": {api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Args: []string{"--listen", "127.0.0.1:1"}}, []string{"--listen", "remove it"}},
		"llama.cpp has none":   {api.Runtime{Kind: api.RuntimeLlamaCpp}, []string{"no model"}},
		"Ray Serve returns":    {api.Runtime{Kind: api.RuntimeRayServe, Model: "x", Args: []string{"--non-blocking"}}, []string{"--non-blocking"}},
		"Ray Serve has none":   {api.Runtime{Kind: api.RuntimeRayServe}, []string{"module:app"}},
		"a sidecar's options":  {api.Runtime{Kind: api.RuntimeVLLM, Endpoint: "http://127.0.0.1:1", Args: []string{"-x"}}, []string{"its container"}},
		"a sidecar's endpoint": {api.Runtime{Kind: api.RuntimeVLLM, Endpoint: "127.0.0.1:1"}, []string{"http://host:port"}},
	} {
		_, err := runtime.New(config(t, tt.spec))
		for _, want := range append(tt.want, "runtime "+tt.spec.Kind) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error that says %q", name, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	dir := t.TempDir()
	plain := write(t, filepath.Join(dir, "vllm"), "no program")
	gguf := write(t, filepath.Join(dir, "x.gguf"), "GGUF")
	for name, tt := range map[string]struct {
		spec api.Runtime
		want string
	}{
		"not in PATH":   {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Env: []string{"PATH=/nowhere:" + t.TempDir()}}, `runtime vllm: the program "vllm" is in no folder of PATH (/nowhere:`},
		"no program":    {api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Env: []string{"PATH=" + dir}}, `the program "vllm" is in no folder`},
		"no such file":  {api.Runtime{Kind: api.RuntimeOllama, Model: gguf, Command: []string{"/absent/ollama", "serve"}}, "there is no program /absent/ollama"},
		"no executable": {api.Runtime{Kind: api.RuntimeLlamaCpp, Model: gguf, Command: []string{plain}}, "no program that may be executed"},
		"a folder":      {api.Runtime{Kind: api.RuntimeCommand, Command: []string{dir}}, "no program that may be executed"},
		"SGLang":        {api.Runtime{Kind: api.RuntimeSGLang, Model: "x", Env: []string{"PATH="}}, `"python3"`},
		"Ray Serve":     {api.Runtime{Kind: api.RuntimeRayServe, Model: "a:b", Env: []string{"PATH=/nowhere"}}, `"ray"`},
	} {
		if name == "SGLang" {
			t.Setenv("PATH", "/nowhere")
		}
		_, err := adapter(t, tt.spec).Launch(tt.spec.Model)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "set the runtime's command") {
			t.Errorf("%s: %v, want an error that says %q", name, err, tt.want)
		}
	}
	if err := os.Chmod(plain, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x", Env: []string{"PATH=/nowhere:" + dir}}).Launch("x")
	if err != nil || l.Path != plain {
		t.Errorf("launch of %s: %v, want %s, by the runtime's own PATH", l.Path, err, plain)
	}
}
