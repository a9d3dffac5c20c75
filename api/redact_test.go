package api

import (
	"slices"
	"strings"
	"testing"
)

// TestRedacted checks that secrets in command lines and URLs are hidden, and that nothing else is.
func TestRedacted(t *testing.T) {
	for _, tc := range []struct{ words, want []string }{
		{[]string{"vllm", "serve", "--api-key", "hunter2", "--max-model-len", "4096"}, []string{"vllm", "serve", "--api-key", "…", "--max-model-len", "4096"}},
		{[]string{"--api-key=hunter2", "--hf_token=hunter2", "-token", "hunter2"}, []string{"--api-key=…", "--hf_token=…", "-token", "…"}},
		{[]string{"env", "HF_TOKEN=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2", "serve"}, []string{"env", "HF_TOKEN=…", "AWS_SECRET_ACCESS_KEY=…", "serve"}},
		{[]string{"sh", "-c", "export HF_TOKEN='hunter2 3'; serve --api-key hunter2 --port $(PORT)"}, []string{"sh", "-c", "export HF_TOKEN=…; serve --api-key … --port $(PORT)"}},
		{[]string{"https://me:hunter2@host/m.gguf?X-Amz-Signature=hunter2&part=1&token=hunter2#x"}, []string{"https://…@host/m.gguf?X-Amz-Signature=…&part=1&token=…"}},
		{[]string{"--header", "Authorization: Bearer hunter2", `{"api_key": "hunter2", "n": 1}`, `{"token":"hunter2"}`}, []string{"--header", "Authorization: …", `{"api_key": …, "n": 1}`, `{"token":…}`}},
		{[]string{"--bearer", "hunter2", "--pass=hunter2", "serve", "sk-proj-abcdefghijklmnop", "hf_abcdefghijklmnopq", "rouse-" + strings.Repeat("a2", 20), "rouse-function"},
			[]string{"--bearer", "…", "--pass=…", "serve", "sk-…", "hf_…", "rouse-…", "rouse-function"}},
		{[]string{"--password", "--verbose"}, []string{"--password", "--verbose"}},
		{
			[]string{"--max-tokens", "512", "--tokenizer", "x", "--token-budget=5", "--ssl-keyfile", "k.pem", "--key-file=k.pem", "monkey=5", "hf.co/a/b?quant=Q4", "user@host", "--served-model-name", "token:latest"},
			[]string{"--max-tokens", "512", "--tokenizer", "x", "--token-budget=5", "--ssl-keyfile", "k.pem", "--key-file=k.pem", "monkey=5", "hf.co/a/b?quant=Q4", "user@host", "--served-model-name", "token:latest"},
		},
	} {
		f := Function{Handler: tc.words, Runtime: Runtime{Command: tc.words, Args: tc.words, Model: "http://a:hunter2@b", Adapters: []Adapter{{Path: tc.words[0]}}, Env: []string{"A=hunter2"}}}
		got := f.Redacted()
		for _, words := range [][]string{got.Handler, got.Runtime.Command, got.Runtime.Args} {
			if !slices.Equal(words, tc.want) {
				t.Errorf("got %q, want %q", words, tc.want)
			}
		}
		if got.Runtime.Model != "http://…@b" || got.Runtime.Adapters[0].Path != tc.want[0] || got.Runtime.Env != nil || f.Runtime.Adapters[0].Path != tc.words[0] {
			t.Errorf("got %+v of %+v", got.Runtime, f.Runtime)
		}
	}
}
