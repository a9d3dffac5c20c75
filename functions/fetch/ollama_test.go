package fetch_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// library makes an origin answer like an Ollama registry with one model, which has two tags.
func newLibrary(t *testing.T) (*origin, map[string][]byte) {
	o := newOrigin(t)
	parts := map[string][]byte{
		"application/vnd.ollama.image.model":             random(80, 40_000),
		"application/vnd.ollama.image.template":          []byte("{{ .Prompt }}"),
		"application/vnd.ollama.image.params":            []byte(`{"temperature":0}`),
		"application/vnd.docker.container.image.v1+json": []byte(`{"model_format":"gguf"}`),
	}
	type layer struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	var manifest struct {
		SchemaVersion int     `json:"schemaVersion"`
		MediaType     string  `json:"mediaType"`
		Config        layer   `json:"config"`
		Layers        []layer `json:"layers"`
	}
	manifest.SchemaVersion, manifest.MediaType = 2, "application/vnd.docker.distribution.manifest.v2+json"
	for kind, content := range parts {
		l := layer{kind, "sha256:" + sumOf(content), len(content)}
		o.set("/v2/library/tiny/blobs/"+l.Digest, served{content: content})
		if strings.Contains(kind, "docker") {
			manifest.Config = l
		} else {
			manifest.Layers = append(manifest.Layers, l)
		}
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"latest", "1b"} {
		o.set("/v2/library/tiny/manifests/"+tag, served{content: text})
	}
	parts["manifest"] = text
	return o, parts
}

func TestOllamaModel(t *testing.T) {
	o, parts := newLibrary(t)
	cfg := config(t, o.Server)
	cfg.Ollama.Endpoint, cfg.Attempts = o.URL, 2
	c := open(t, cfg)
	m := fetched(t, c, "ollama://tiny:1b")
	if m.Name != "tiny:1b" || filepath.Base(m.GGUF) != "sha256-"+sumOf(parts["application/vnd.ollama.image.model"]) {
		t.Errorf("the model is %+v", m)
	}
	want := []string{"manifests/registry.ollama.ai/library/tiny/1b"}
	for kind, content := range parts {
		if kind != "manifest" {
			want = append(want, "blobs/sha256-"+sumOf(content))
		}
	}
	slices.Sort(want)
	if got := names(t, m.Path); !slices.Equal(got, want) {
		t.Errorf("OLLAMA_MODELS has %q, want %q", got, want)
	}
	holds(t, filepath.Join(m.Path, "manifests/registry.ollama.ai/library/tiny/1b"), parts["manifest"])
	holds(t, m.GGUF, parts["application/vnd.ollama.image.model"])

	before := len(o.seen())
	latest := fetched(t, c, "ollama://tiny")
	if more := o.seen()[before:]; len(more) != 1 || latest.Name != "tiny:latest" {
		t.Errorf("another tag of the same content is %+v, and asks %q", latest, more)
	}
	for ref, want := range map[string]string{"ollama://tiny:9b": "no model tiny with the tag 9b", "ollama://me/tiny": "no model me/tiny"} {
		if err := refused(t, c, ref, want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

func TestOllamaManifestThatLies(t *testing.T) {
	for manifest, want := range map[string]string{
		`{"config":{"digest":"sha256:../../x","size":1},"layers":[{}]}`:        "want a sha256",
		`{"config":{"digest":"sha256:` + sum64 + `","size":-1},"layers":[{}]}`: "want a sha256",
		`{"layers":[]}`: "no model's manifest",
		`<html>`:        "makes no sense",
	} {
		o := newOrigin(t)
		o.set("/v2/library/tiny/manifests/latest", served{content: []byte(manifest)})
		cfg := config(t, o.Server)
		cfg.Ollama.Endpoint = o.URL
		if err := refused(t, open(t, cfg), "ollama://tiny", want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{
		"HOME": "/home/me", "XDG_CACHE_HOME": "/cache", "HF_ENDPOINT": "https://hub.example", "AWS_ENDPOINT_URL": "https://s3.example",
		"AWS_REGION": "eu-1", "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "DOCKER_CONFIG": "/docker", "HF_TOKEN_PATH": "/token",
	}
	c := fetch.Environment(func(k string) string { return env[k] })
	if c.Dir != "/cache/rouse/models" || c.Hub.Endpoint != "https://hub.example" || c.Hub.TokenFile != "/token" || c.S3.Endpoint != "https://s3.example" ||
		c.S3.Region != "eu-1" || c.S3.AccessKey != "AK" || c.S3.SecretKey != "SK" || c.DockerConfig != "/docker/config.json" || c.S3.CredentialsFile != "/home/me/.aws/credentials" {
		t.Errorf("the configuration is %+v", c)
	}
	env = map[string]string{"HOME": "/home/me", "ROUSE_CACHE": "/models", "HF_TOKEN": "hush"}
	c = fetch.Environment(func(k string) string { return env[k] })
	if c.Dir != "/models" || c.Hub.Token != "hush" || c.Hub.TokenFile != "" || c.DockerConfig != "/home/me/.docker/config.json" {
		t.Errorf("the configuration is %+v", c)
	}
	for _, endpoint := range []string{"hub.example", "ftp://hub.example", "https://me:hush@hub.example", "https://"} {
		_, err := fetch.New(fetch.Config{Dir: t.TempDir(), Hub: fetch.Hub{Endpoint: endpoint}})
		if err == nil || !strings.Contains(err.Error(), "HF_ENDPOINT") || strings.Contains(err.Error(), "hush") {
			t.Errorf("New with the hub %s = %v", endpoint, err)
		}
	}
}
