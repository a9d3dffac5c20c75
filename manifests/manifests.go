// Package manifests holds the objects that Rouse installs in a cluster.
//
// The files are plain kustomize: "kubectl apply -k manifests/overlays/default" and [Render] make the same objects. base
// is part of every overlay.
//
// It has no object of Knative's: deleting what was applied leaves Knative intact.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

//go:embed base overlays components examples
var files embed.FS

// Overlays returns the overlays' names.
func Overlays() []string { return namesIn("overlays") }

// Components returns the components' names.
func Components() []string { return namesIn("components") }

func namesIn(folder string) []string {
	entries, err := files.ReadDir(folder)
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Render returns the objects of an overlay as a YAML stream. images replaces the images in the files, by name without
// tag: {"dev.local/rouse-activator": "ghcr.io/me/rouse-activator:v2"}. It makes no request.
func Render(overlay string, images map[string]string, components ...string) ([]byte, error) {
	if !slices.Contains(Overlays(), overlay) {
		return nil, fmt.Errorf("no overlay %q: there are %s", overlay, strings.Join(Overlays(), ", "))
	}
	top := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{"overlays/" + overlay},
	}
	for _, c := range components {
		if !slices.Contains(Components(), c) {
			return nil, fmt.Errorf("no component %q: there are %s", c, strings.Join(Components(), ", "))
		}
		top.Components = append(top.Components, "components/"+c)
	}
	for _, from := range slices.Sorted(maps.Keys(images)) {
		image, err := replacement(from, images[from])
		if err != nil {
			return nil, err
		}
		top.Images = append(top.Images, image)
	}
	return render(top)
}

func replacement(from, to string) (types.Image, error) {
	ref, err := name.ParseReference(to, name.WithDefaultRegistry(""))
	if err != nil {
		return types.Image{}, fmt.Errorf("image %q for %s: want NAME:TAG or NAME@sha256:DIGEST: %w", to, from, err)
	}
	image := types.Image{Name: from, NewName: ref.Context().Name()}
	if d, is := ref.(name.Digest); is {
		image.Digest = d.DigestStr()
	} else {
		image.NewTag = ref.Identifier()
	}
	return image, nil
}

// render runs kustomize on a copy of the files in memory.
func render(top types.Kustomization) ([]byte, error) {
	memory := filesys.MakeFsInMemory()
	err := fs.WalkDir(files, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := files.ReadFile(p)
		if err != nil {
			return err
		}
		return memory.WriteFile(path.Join("/", p), content)
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded manifests: %w", err)
	}
	content, err := yaml.Marshal(top)
	if err != nil {
		return nil, fmt.Errorf("write the kustomization: %w", err)
	}
	if err := memory.WriteFile("/kustomization.yaml", content); err != nil {
		return nil, fmt.Errorf("write the kustomization: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl: objects that others need come first
	objects, err := krusty.MakeKustomizer(options).Run(memory, "/")
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", strings.Join(top.Resources, ", "), err)
	}
	out, err := objects.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write the objects as YAML: %w", err)
	}
	return out, nil
}
