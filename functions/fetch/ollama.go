package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// library is the source of ollama:// references, as folders for OLLAMA_MODELS.
type library struct {
	c   *Cache
	ref Ref
}

type ollamaManifest struct {
	Config *ollamaLayer  `json:"config"`
	Layers []ollamaLayer `json:"layers"`
}

type ollamaLayer struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      api.Bytes `json:"size"`
}

const ollamaHost = "registry.ollama.ai"

func (o *library) plan(ctx context.Context) (*plan, error) {
	base := o.c.cfg.Ollama.Endpoint + "/v2/" + o.ref.repo
	host := ollamaHost // Ollama looks it up by this name, whatever the endpoint
	if o.ref.host != "" {
		base, host = "https://"+o.ref.host+"/v2/"+o.ref.repo, o.ref.host
	}
	address := base + "/manifests/" + url.PathEscape(o.ref.rev)
	var raw []byte
	var m ollamaManifest
	err := o.c.do(ctx, o.hint, func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err == nil {
			req.Header.Set("Accept", "application/vnd.docker.distribution.manifest.v2+json")
		}
		return req, err
	}, func(_ http.Header, body []byte) error {
		raw = body
		return json.Unmarshal(body, &m)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	if m.Config == nil || len(m.Layers) == 0 {
		return nil, permanentf("the answer of %s is no model's manifest", address)
	}
	sum := sha256.Sum256(raw)
	digest := hex.EncodeToString(sum[:])
	p := &plan{revision: "sha256:" + digest, name: strings.TrimPrefix(o.ref.repo, "library/") + ":" + o.ref.rev}
	if o.ref.host != "" {
		p.name = o.ref.host + "/" + o.ref.repo + ":" + o.ref.rev
	}
	p.files = []file{{name: path.Join("manifests", host, o.ref.repo, o.ref.rev), size: api.Bytes(len(raw)), data: raw, sums: sums{sha256: digest}, from: address}}
	return p, o.blobs(p, m, base)
}

func (o *library) blobs(p *plan, m ollamaManifest, base string) error {
	seen := map[string]bool{}
	for _, l := range append([]ollamaLayer{*m.Config}, m.Layers...) {
		hash, isSum := strings.CutPrefix(l.Digest, "sha256:")
		if !isSum || !isHex(hash, 64) || l.Size < 0 {
			return permanentf("the manifest has a layer with the digest %.100q: want a sha256", l.Digest)
		}
		blob := "blobs/sha256-" + hash
		if l.MediaType == "application/vnd.ollama.image.model" && p.gguf == "" {
			p.gguf = blob
		}
		if seen[hash] {
			continue
		}
		seen[hash] = true
		from := base + "/blobs/" + l.Digest
		p.files = append(p.files, file{
			name: blob, size: l.Size, sums: sums{sha256: hash}, from: from, id: from, hint: o.hint, credential: new(string),
			get: getter(from),
		})
	}
	return nil
}

func (o *library) hint(code int, _ http.Header) string {
	switch code {
	case http.StatusNotFound:
		return "there is no model " + strings.TrimPrefix(o.ref.repo, "library/") + " with the tag " + o.ref.rev
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the model does not exist or is private: only public ones can be fetched"
	case http.StatusPreconditionFailed:
		return "the model needs a newer Ollama"
	}
	return ""
}
