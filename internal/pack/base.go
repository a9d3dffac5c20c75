package pack

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Base is an image in a registry, for one architecture. Its layers are read when an image based on it is written.
type Base struct{ image v1.Image }

// Fetch finds an image. ctx also bounds later reads of its layers. It uses the credentials of "docker login".
func Fetch(ctx context.Context, ref, arch string) (*Base, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("image %q: want NAME:TAG or NAME@sha256:DIGEST: %w", ref, err)
	}
	image, err := remote.Image(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		return nil, fmt.Errorf("fetch %s for %s: %w", ref, arch, err)
	}
	return &Base{image}, nil
}
