// Package pack builds container images of static programs without Docker, a Dockerfile or a base image from elsewhere.
//
// Unless programs are added to an existing image ([Image.Onto]), the base layer has the files that a static program
// expects, and is the same for all images. Images are reproducible: the same programs with the same certificate
// authorities have the same digest on every machine.
package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User is the account of every image, numeric as runAsNonRoot requires.
const User = "65532:65532"

const uid = 65532

const certificates = "/etc/ssl/certs/ca-certificates.crt"

// epoch is the time of all files: the earliest that zip supports.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Image describes one image.
type Image struct {
	// Name is its reference. The tag must not be latest: Kubernetes always asks a registry for latest.
	Name string
	// Arch is the architecture as Go spells it. The operating system is linux.
	Arch string
	// Programs maps paths in the image to local files; it may include data and libraries.
	Programs map[string]string
	// Entrypoint is the program to run and its leading args. Empty: the only program.
	Entrypoint []string
	// Env holds NAME=value.
	Env    []string
	Labels map[string]string
	// Onto is an image whose files, variables and account stay; nil: the base of this package.
	Onto *Base
}

// Program returns an image with a single static program, named like the last part of the image's name.
func Program(ref, arch, file string) Image {
	short := path.Base(ref)
	short, _, _ = strings.Cut(short, ":")
	return Image{Name: ref, Arch: arch, Programs: map[string]string{"/" + short: file}}
}

func (i Image) check() (Image, error) {
	tag, err := name.NewTag(i.Name, name.StrictValidation)
	if err != nil {
		return i, fmt.Errorf("image %q: want HOST/NAME:TAG: %w", i.Name, err)
	}
	if tag.TagStr() == "latest" {
		return i, fmt.Errorf("image %s: give it a tag of its own: for latest a node asks the registry each time", i.Name)
	}
	if len(i.Programs) == 0 {
		return i, fmt.Errorf("image %s: no program in it", i.Name)
	}
	for at := range i.Programs {
		if !path.IsAbs(at) || path.Clean(at) != at || at == "/" {
			return i, fmt.Errorf("image %s: program %q: want an absolute path in the image", i.Name, at)
		}
	}
	if len(i.Entrypoint) == 0 {
		if len(i.Programs) > 1 {
			return i, fmt.Errorf("image %s: it has %d programs: say with Entrypoint which one to run", i.Name, len(i.Programs))
		}
		i.Entrypoint = slices.Collect(maps.Keys(i.Programs))
	}
	if i.Arch == "" {
		return i, fmt.Errorf("image %s: say for which architecture: amd64 or arm64", i.Name)
	}
	return i, nil
}

func (i Image) build() (img v1.Image, err error) {
	if i, err = i.check(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("image %s: %w", i.Name, err)
		}
	}()
	under, err := i.under()
	if err != nil {
		return nil, err
	}
	programs, err := i.programs()
	if err != nil {
		return nil, err
	}
	img, err = mutate.Append(under, mutate.Addendum{
		Layer: programs, History: history("programs: " + strings.Join(slices.Sorted(maps.Keys(i.Programs)), " ")),
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Config.Entrypoint, file.Config.Cmd = i.Entrypoint, nil
	file.Config.Env = append(slices.Clone(file.Config.Env), i.Env...)
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	maps.Copy(file.Config.Labels, i.Labels)
	return mutate.ConfigFile(img, file)
}

func (i Image) under() (v1.Image, error) {
	if i.Onto != nil {
		return i.Onto.image, nil
	}
	layer, err := base()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: history("base: accounts, certificate authorities, /tmp")}); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", i.Arch, v1.Time{Time: epoch}
	file.Config = v1.Config{
		User: User, WorkingDir: "/", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/", "SSL_CERT_FILE=" + certificates},
	}
	return mutate.ConfigFile(img, file)
}

func history(what string) v1.History {
	return v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "rouse cmd/internal/image", Comment: what}
}

func base() (v1.Layer, error) {
	l := newLayer()
	for _, dir := range []string{"etc", "etc/ssl", "etc/ssl/certs", "home"} {
		l.dir(dir, 0o755, 0)
	}
	l.dir("home/nonroot", 0o700, uid)
	l.dir("tmp", 0o1777, 0)
	l.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"))
	l.file("etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n"))
	l.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	authorities, err := os.ReadFile(certificates)
	switch {
	case errors.Is(err, os.ErrNotExist): // without them, TLS to public servers fails with an error
	case err != nil:
		return nil, err
	default:
		l.file(certificates[1:], 0o644, authorities)
	}
	return l.close()
}

func (i Image) programs() (v1.Layer, error) {
	l := newLayer()
	made := map[string]bool{"": true}
	has := func(path string) bool { _, found := i.Programs[path]; return found }
	for _, at := range slices.Sorted(maps.Keys(i.Programs)) {
		content, err := os.ReadFile(i.Programs[at])
		if err != nil {
			return nil, err
		}
		if at == i.Entrypoint[0] && i.Onto == nil { // others may be for images that they are copied into
			if err := runnable(content, has); err != nil {
				return nil, fmt.Errorf("%s: %w", i.Programs[at], err)
			}
		}
		folder := ""
		for part := range strings.SplitSeq(strings.Trim(path.Dir(at), "/"), "/") {
			if folder = path.Join(folder, part); !made[folder] {
				made[folder] = true
				l.dir(folder, 0o755, 0)
			}
		}
		l.file(at[1:], 0o755, content)
	}
	return l.close()
}

// layer keeps the first error.
type layer struct {
	buf bytes.Buffer
	tar *tar.Writer
	err error
}

func newLayer() *layer {
	l := new(layer)
	l.tar = tar.NewWriter(&l.buf)
	return l
}

func (l *layer) dir(name string, mode int64, owner int) {
	l.put(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (l *layer) file(name string, mode int64, content []byte) {
	l.put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (l *layer) put(h tar.Header, content []byte) {
	h.ModTime, h.Format = epoch, tar.FormatPAX
	if l.err == nil {
		l.err = l.tar.WriteHeader(&h)
	}
	if l.err == nil {
		_, l.err = l.tar.Write(content)
	}
}

func (l *layer) close() (v1.Layer, error) {
	if err := errors.Join(l.err, l.tar.Close()); err != nil {
		return nil, fmt.Errorf("write a layer: %w", err)
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.buf.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
}
