package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/rouse-dev/rouse/api"
)

// registry is the source of oci:// references:
//
//   - artifacts whose layers are files, named by org.opencontainers.image.title (ORAS) or media type (Docker's models);
//   - artifacts whose layers are archives (ModelKits of KitOps, CNCF ModelPacks);
//   - images; one with a folder /models (a KServe modelcar) is that folder.
type registry struct {
	c   *Cache
	ref Ref
}

const (
	titleAnnotation    = "org.opencontainers.image.title"
	filepathAnnotation = "org.cncf.model.filepath"
)

func (o *registry) plan(ctx context.Context) (*plan, error) {
	ref, err := o.reference()
	if err != nil {
		return nil, err
	}
	auth, err := authn.Resolve(ctx, o, ref.Context())
	if err != nil {
		return nil, fmt.Errorf("read the registry's credentials: %w", err)
	}
	var p *plan
	err = o.c.retry(ctx, func() error {
		p, err = o.look(ctx, ref, auth)
		if err != nil {
			return o.explain(err)
		}
		return nil
	})
	return p, err
}

func (o *registry) reference() (name.Reference, error) {
	separator := ":"
	if strings.HasPrefix(o.ref.rev, "sha256:") {
		separator = "@"
	}
	ref, err := name.ParseReference(o.ref.host + "/" + o.ref.repo + separator + o.ref.rev)
	if err != nil {
		return nil, lasting{err}
	}
	return ref, nil
}

func (o *registry) look(ctx context.Context, ref name.Reference, auth authn.Authenticator) (*plan, error) {
	repo := ref.Context()
	authorized, err := transport.NewWithContext(ctx, repo.Registry, auth, cmp.Or(o.c.client.Transport, http.DefaultTransport), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	desc, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(authorized),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1})) // the caller counts attempts
	if err != nil {
		return nil, err
	}
	raw := desc.Manifest
	if desc.MediaType.IsIndex() {
		img, err := desc.Image()
		if err != nil {
			return nil, permanentf("the index has no image for linux/%s: %w", runtime.GOARCH, err)
		}
		if raw, err = img.RawManifest(); err != nil {
			return nil, err
		}
	}
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, permanentf("the manifest makes no sense: %w", err)
	}
	client := *o.c.client
	client.Transport = authorized
	p, err := o.layers(repo, m, &client)
	if err != nil {
		return nil, err
	}
	credential, err := credentialOf(ctx, auth)
	if err != nil {
		return nil, err
	}
	for i := range p.files {
		p.files[i].credential = &credential
	}
	p.revision = desc.Digest.String()
	return p, nil
}

// credentialOf returns "" if there is none.
func credentialOf(ctx context.Context, auth authn.Authenticator) (string, error) {
	a, err := authn.Authorization(ctx, auth)
	if err != nil || a == nil || *a == (authn.AuthConfig{}) {
		return "", err
	}
	text, err := json.Marshal(*a)
	return string(text), err
}

func (o *registry) layers(repo name.Repository, m v1.Manifest, client *http.Client) (*plan, error) {
	p := &plan{}
	untitled := map[string]int{}
	for _, l := range m.Layers {
		if l.Digest.Algorithm != "sha256" || !isHex(l.Digest.Hex, 64) || l.Size < 0 {
			return nil, permanentf("the manifest has a layer with the digest %q: want a sha256", l.Digest)
		}
		address := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", repo.Scheme(), repo.RegistryStr(), repo.RepositoryStr(), l.Digest)
		f := file{
			size: api.Bytes(l.Size), sums: sums{sha256: l.Digest.Hex}, client: client, from: address, id: address,
			hint: o.hint, unpack: isArchive(l),
			get: getter(address),
		}
		switch title := strings.TrimPrefix(cmp.Or(l.Annotations[titleAnnotation], l.Annotations[filepathAnnotation]), "./"); {
		case f.unpack:
			f.name = "layer " + l.Digest.Hex[:12]
		case title != "":
			f.name = title
		default:
			f.name = untitledName(l, untitled)
		}
		if !f.unpack {
			if err := safeName(f.name); err != nil {
				return nil, err
			}
		}
		p.files = append(p.files, f)
	}
	if len(p.files) == 0 {
		return nil, permanentf("the artifact has no layers")
	}
	return o.choose(p)
}

// choose applies the reference's patterns: to files now, to archives after unpacking.
func (o *registry) choose(p *plan) (*plan, error) {
	var plain, archives []file
	for _, f := range p.files {
		if f.unpack {
			archives = append(archives, f)
		} else {
			plain = append(plain, f)
		}
	}
	if len(archives) == 0 {
		var err error
		p.files, err = filter(o.ref, plain, nameOf)
		return p, err
	}
	p.merge = func(layers []layer, files []stored) ([]stored, error) {
		all := merged(layers)
		var models []stored
		for _, f := range all {
			if below, ok := strings.CutPrefix(f.Name, "models/"); ok {
				models = append(models, stored{Name: below, Size: f.Size, SHA256: f.SHA256})
			}
		}
		if len(models) > 0 && len(files) == 0 {
			all = models
		}
		return filter(o.ref, append(all, files...), func(f stored) string { return f.Name })
	}
	return p, nil
}

func isArchive(l v1.Descriptor) bool {
	t := string(l.MediaType)
	return l.MediaType.IsLayer() || strings.HasSuffix(t, ".tar") || strings.Contains(t, ".tar+") || strings.Contains(t, ".tar.")
}

func untitledName(l v1.Descriptor, used map[string]int) string {
	t := strings.ToLower(string(l.MediaType))
	n := "model"
	for _, known := range [][2]string{{"mmproj", "mmproj.gguf"}, {"gguf", "model.gguf"}, {"safetensors", "model.safetensors"}, {"license", "LICENSE"}, {"readme", "README.md"}, {"json", "model.json"}} {
		if strings.Contains(t, known[0]) {
			n = known[1]
			break
		}
	}
	used[n]++
	if used[n] == 1 {
		return n
	}
	ext := path.Ext(n)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(n, ext), used[n], ext)
}

func (o *registry) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if o.c.cfg.DockerConfig == "" {
		return authn.Anonymous, nil
	}
	f, err := os.Open(o.c.cfg.DockerConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cf, err := config.LoadFromReader(f)
	if err != nil {
		return nil, permanentf("%s is no docker config file", o.c.cfg.DockerConfig) // its error may show the file's content
	}
	for _, key := range []string{target.String(), target.RegistryStr()} {
		if key == name.DefaultRegistry {
			key = authn.DefaultAuthKey
		}
		a, err := cf.GetAuthConfig(key)
		if err != nil {
			return nil, err
		}
		found := authn.AuthConfig{Username: a.Username, Password: a.Password, Auth: a.Auth, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
		if found != (authn.AuthConfig{}) {
			return authn.FromConfig(found), nil
		}
	}
	return authn.Anonymous, nil
}

func (o *registry) explain(err error) error {
	var t *transport.Error
	if !errors.As(err, &t) {
		return transportError(err)
	}
	e := &statusError{code: t.StatusCode, url: "https://" + o.ref.host + "/v2/" + o.ref.repo, hint: o.hint(t.StatusCode, nil)}
	if t.Request != nil {
		e.url = redact(t.Request.URL)
	}
	return e
}

func (o *registry) hint(code int, _ http.Header) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		if o.c.cfg.DockerConfig == "" {
			return "the repository does not exist, or needs credentials: a docker config file (DOCKER_CONFIG names its folder)"
		}
		return "the repository does not exist, or the credentials in " + o.c.cfg.DockerConfig + " are not good for it"
	case http.StatusNotFound:
		return "there is no " + o.ref.repo + " with the tag or digest " + o.ref.rev
	}
	return ""
}
