package fetch_test

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

var sum64 = strings.Repeat("0123456789abcdef", 4)

func TestParse(t *testing.T) {
	for ref, want := range map[string]string{
		"pico":                           "pico",
		"org/name":                       "org/name",
		"llama3:8b":                      "llama3:8b",
		"/models/a.gguf":                 "/models/a.gguf",
		"/models/a#b?c.gguf":             "/models/a#b?c.gguf",
		"./a.gguf?sha256=" + sum64:       "file://./a.gguf#sha256=" + sum64,
		"file:///models/a.gguf":          "file:///models/a.gguf",
		"file://localhost/models/a.gguf": "file:///models/a.gguf",
		"FILE:///a#sha256=" + strings.ToUpper(sum64): "file:///a#sha256=" + sum64,
		"https://User:secret@Host/a.gguf?sig=se":     "https://host/a.gguf?…",
		"http://host:8080/a.gguf#sha256=" + sum64:    "http://host:8080/a.gguf#sha256=" + sum64,
		"hf://org/name":                           "hf://org/name@main",
		"hf://org/name@v1.0/sub/a.gguf":           "hf://org/name@v1.0/sub/a.gguf",
		"hf://org/name/sub/":                      "hf://org/name@main/sub",
		"hf://org/name@refs/pr/1/a.gguf":          "hf://org/name@refs%2Fpr%2F1/a.gguf",
		"hf://org/name@refs%2Fpr%2F1/a.gguf":      "hf://org/name@refs%2Fpr%2F1/a.gguf",
		"hf://org/name?include=*.json,*.gguf":     "hf://org/name@main?include=%2A.json%2C%2A.gguf",
		"hf://org/name?quant=Q8_0":                "hf://org/name@main?quant=Q8_0",
		"oci://ghcr.io/org/model":                 "oci://ghcr.io/org/model:latest",
		"oci://localhost:5000/model:v1":           "oci://localhost:5000/model:v1",
		"oci://ghcr.io/org/model@sha256:" + sum64: "oci://ghcr.io/org/model@sha256:" + sum64,
		"oci://docker.io/ai/smollm2:360M":         "oci://index.docker.io/ai/smollm2:360M",
		"s3://bucket/models/a.gguf":               "s3://bucket/models/a.gguf",
		"s3://bucket?region=eu-central-1":         "s3://bucket/?region=eu-central-1",
		"ollama://qwen2.5:0.5b":                   "ollama://qwen2.5:0.5b",
		"ollama://user/name":                      "ollama://user/name:latest",
		"ollama://library/name":                   "ollama://name:latest",
		"ollama://hf.co/org/name-GGUF:Q4_K_M":     "ollama://hf.co/org/name-GGUF:Q4_K_M",
	} {
		r, err := fetch.Parse(ref)
		if err != nil || r.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", ref, r, err, want)
		}
	}
}

func TestParseSaysWhatToChange(t *testing.T) {
	for ref, want := range map[string]string{
		"":                                       "is empty",
		"hff://org/name":                         "did you mean hf?",
		"htps://host/a":                          "did you mean https?",
		"gs://bucket/a":                          "want one of file://, http://, https://, hf://, oci://, s3://, ollama://, or a path",
		"hf:org/name":                            "want hf://org/name",
		"hf://gpt2":                              "want hf://org/name",
		"hf://org/../name":                       "want hf://org/name",
		"hf://org/name@":                         "want a branch, a tag or a commit",
		"hf://org/name/../../etc/passwd":         "leaves the model's folder",
		"hf://org/name?includes=a":               "want include, exclude",
		"hf://org/name?quant=*":                  "want include, exclude",
		"s3://bucket/a?quant=Q8_0":               "want include, exclude",
		"hf://org/name#frag":                     "only sha256=HEX",
		"https:///a":                             "names no host",
		"https://h/a#sha256=12":                  "want 64 hexadecimal digits",
		"https://h/a#md5=12":                     "only sha256=HEX",
		"https://user:secret@h:port/a":           "is no URL",
		"/a?sha256=xyz":                          "want 64 hexadecimal digits",
		"oci://model":                            "want oci://registry/repository",
		"oci://host/UPPER":                       "want oci://registry/repository",
		"s3://b@d/key":                           "holds no credentials",
		"s3:///key":                              "names no bucket",
		"ollama://a/b/c/d":                       "want ollama://name",
		"ollama://..":                            "want ollama://name",
		"ollama://a:b/../../c":                   "want ollama://name",
		"file://":                                "file:///absolute/path",
		"a\nb":                                   "control character",
		"https://h/" + strings.Repeat("a", 9000): "longer than",
	} {
		_, err := fetch.Parse(ref)
		if err == nil || !strings.Contains(err.Error(), want) || !fetch.Permanent(err) {
			t.Errorf("Parse(%.60q) = %v; want a permanent error with %q", ref, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("Parse(%q) shows the password: %v", ref, err)
		}
	}
}

func TestLocal(t *testing.T) {
	for ref, want := range map[string]bool{
		"pico": true, "/models/a.gguf": true, "./a": true, "org/name": true, "name:tag": true,
		"": false, "file:///a": false, "hf://org/name": false, "hff://org/name": false, "/a?sha256=" + sum64: false,
	} {
		if got := fetch.Local(ref); got != want {
			t.Errorf("Local(%q) = %v, want %v", ref, got, want)
		}
	}
}

// FuzzParse: nothing panics, and the canonical form of a reference parses as itself.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"pico", "/a.gguf#sha256=" + sum64, "https://u:p@h/a?b=c#sha256=" + sum64, "hf://o/n@refs/pr/1/p?include=*.json&exclude=a",
		"oci://h:5000/r@sha256:" + sum64, "s3://bucket/a/b?region=x", "ollama://h/u/n:t", "hf:o/n", "://", "a://b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		r, err := fetch.Parse(ref)
		if err != nil {
			if !fetch.Permanent(err) {
				t.Fatalf("Parse(%q): %v is not permanent", ref, err)
			}
			return
		}
		again, err := fetch.Parse(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("Parse(%q) is %s, which is read as %s, %v", ref, r, again, err)
		}
	})
}
