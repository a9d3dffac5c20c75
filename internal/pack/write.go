package pack

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Write writes the images into one tar at path, atomically, for "ctr images import", "docker load" and "podman load". Names
// must be unique.
func Write(path string, images []Image) error {
	a, err := newArchive(images)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write the images: %w", err)
	}
	err = a.write(f)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the images to %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// archive is a tar in which docker save's manifest and OCI's index refer to the same blobs.
type archive struct {
	blobs  map[string]v1.Layer // by path in the tar
	index  v1.IndexManifest
	legacy []legacy
}

type legacy struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func newArchive(images []Image) (*archive, error) {
	a := &archive{
		blobs: map[string]v1.Layer{},
		index: v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex},
	}
	images = slices.SortedFunc(slices.Values(images), func(x, y Image) int { return strings.Compare(x.Name, y.Name) })
	for n, image := range images {
		if n > 0 && images[n-1].Name == image.Name {
			return nil, fmt.Errorf("image %s is there twice: one tar holds one architecture", image.Name)
		}
		img, err := image.build()
		if err != nil {
			return nil, err
		}
		if err := a.add(image, img); err != nil {
			return nil, fmt.Errorf("image %s: %w", image.Name, err)
		}
	}
	return a, nil
}

func (a *archive) add(i Image, img v1.Image) error {
	manifest, err := partial.Descriptor(img)
	if err != nil {
		return err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(img)
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	var paths []string
	for _, l := range append([]v1.Layer{config}, layers...) {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		paths = append(paths, blob(digest))
		a.blobs[blob(digest)] = l
	}
	a.blobs[blob(manifest.Digest)] = static.NewLayer(raw, manifest.MediaType)
	a.legacy = append(a.legacy, legacy{Config: paths[0], RepoTags: []string{i.Name}, Layers: paths[1:]})
	a.index.Manifests = append(a.index.Manifests, v1.Descriptor{
		MediaType: manifest.MediaType, Digest: manifest.Digest, Size: manifest.Size,
		Platform:    &v1.Platform{OS: "linux", Architecture: i.Arch},
		Annotations: map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name},
	})
	return nil
}

func blob(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func (a *archive) write(w io.Writer) error {
	index, err := json.Marshal(a.index)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(a.legacy)
	if err != nil {
		return err
	}
	for at, content := range map[string][]byte{"index.json": index, "manifest.json": manifest, "oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)} {
		a.blobs[at] = static.NewLayer(content, types.OCIUncompressedLayer)
	}
	tw := tar.NewWriter(w)
	for _, at := range slices.Sorted(maps.Keys(a.blobs)) {
		if err := copyBlob(tw, at, a.blobs[at]); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return tw.Close()
}

func copyBlob(tw *tar.Writer, at string, l v1.Layer) error {
	size, err := l.Size()
	if err != nil {
		return err
	}
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := tw.WriteHeader(&tar.Header{Name: at, Mode: 0o644, Size: size, ModTime: epoch, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(tw, r)
	return err
}

// Push pushes the images to their registries, and returns the digest of each name. Images with the same name become one
// index. It uses the credentials of "docker login".
func Push(ctx context.Context, images []Image) (map[string]string, error) {
	byName := map[string][]Image{}
	for _, i := range images {
		byName[i.Name] = append(byName[i.Name], i)
	}
	digests := map[string]string{}
	for _, ref := range slices.Sorted(maps.Keys(byName)) {
		digest, err := push(ctx, ref, byName[ref])
		if err != nil {
			return digests, fmt.Errorf("push %s: %w", ref, err)
		}
		digests[ref] = digest
	}
	return digests, nil
}

func push(ctx context.Context, ref string, images []Image) (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range slices.SortedFunc(slices.Values(images), func(x, y Image) int { return strings.Compare(x.Arch, y.Arch) }) {
		img, err := i.build()
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.Arch}},
		})
	}
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.String(), err
}
