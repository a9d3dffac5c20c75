package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/pack"
)

const module = "github.com/rouse-dev/rouse"

type product struct {
	name, title string
	programs    map[string]string // path in the image → folder of its main package
	entrypoint  string
	env         []string
	onto        string // an image in a registry to add it to
}

// products are all images. The function's includes cmd/rouse, which has the engine, and rouse-suspend for images that
// have the C library and NVIDIA's driver.
var products = []product{
	{
		name: "activator", title: "Rouse's activator: the data path and the front door",
		programs: map[string]string{"/rouse-activator": "cmd/rouse-activator"}, entrypoint: "/rouse-activator",
	}, {
		name: "autoscaler", title: "Rouse's autoscaler: decides who sleeps, wakes and starts",
		programs: map[string]string{"/rouse-autoscaler": "cmd/rouse-autoscaler"}, entrypoint: "/rouse-autoscaler",
	}, {
		name: "function", title: "A function of Rouse: a model server and the one door to it",
		programs:   map[string]string{"/rouse-function": "cmd/rouse-function", "/rouse": "cmd/rouse", "/rouse-suspend": "cmd/rouse-suspend"},
		entrypoint: "/rouse-function", env: []string{"ROUSE_ENGINE_BINARY=/rouse"},
	},
}

func names() []string {
	var all []string
	for _, p := range products {
		all = append(all, p.name)
	}
	return all
}

func choose(wanted []string) ([]product, error) {
	if len(wanted) == 0 {
		return products, nil
	}
	var chosen []product
	for _, w := range wanted {
		n := slices.IndexFunc(products, func(p product) bool { return p.name == w || "rouse-"+p.name == w })
		if n < 0 {
			return nil, fmt.Errorf("no image %q: there are %s", w, strings.Join(names(), ", "))
		}
		chosen = append(chosen, products[n])
	}
	return chosen, nil
}

func (o options) build(ctx context.Context, dir, arch string) ([]pack.Image, error) {
	version, revision := o.Version, git(ctx, "rev-parse", "HEAD")
	if version == "" {
		version = git(ctx, "describe", "--tags", "--always", "--dirty")
	}
	if version == "" {
		version = "dev"
	}
	into := filepath.Join(dir, arch)
	derived, err := o.derived()
	if err != nil {
		return nil, err
	}
	if err := compile(ctx, slices.Concat(o.products, derived), version, arch, into); err != nil {
		return nil, err
	}
	var images []pack.Image
	for _, p := range slices.Concat(o.products, derived) {
		image := pack.Image{
			Name: fmt.Sprintf("%s/rouse-%s:%s", o.Prefix, p.name, o.Tag), Arch: arch,
			Programs: map[string]string{}, Entrypoint: []string{p.entrypoint}, Env: p.env,
			Labels: labels(p.title, version, revision),
		}
		for at, folder := range p.programs {
			image.Programs[at] = filepath.Join(into, path.Base(folder))
		}
		if p.onto != "" {
			if image.Onto, err = pack.Fetch(ctx, p.onto, arch); err != nil {
				return nil, err
			}
		}
		images = append(images, image)
	}
	for _, a := range o.Add {
		ref, file, found := strings.Cut(a, "=")
		if !found {
			return nil, fmt.Errorf("--add %q: want NAME:TAG=PROGRAM, such as dev.local/probe:v1=./probe", a)
		}
		images = append(images, pack.Program(ref, arch, file))
	}
	return images, nil
}

// derived returns the images of runtimes with the function added.
func (o options) derived() ([]product, error) {
	var all []product
	for _, pair := range o.Onto {
		kind, image, found := strings.Cut(pair, "=")
		if !found || image == "" || !slices.Contains(api.RuntimeKinds, kind) {
			return nil, fmt.Errorf("--onto %q: want RUNTIME=IMAGE, such as ollama=ollama/ollama:0.12.6; runtimes are %s", pair, strings.Join(api.RuntimeKinds, ", "))
		}
		all = append(all, product{
			name: kind, title: "A function of Rouse on " + image, onto: image,
			programs:   map[string]string{"/usr/local/bin/rouse-function": "cmd/rouse-function", "/usr/local/bin/rouse-suspend": "cmd/rouse-suspend"},
			entrypoint: "/usr/local/bin/rouse-function", env: []string{"ROUSE_RUNTIME=" + kind},
		})
	}
	return all, nil
}

// compile builds the main packages of the products into the folder into.
func compile(ctx context.Context, wanted []product, version, arch, into string) error {
	folders := map[string]bool{}
	for _, p := range wanted {
		for _, f := range p.programs {
			folders["./"+f] = true
		}
	}
	if len(folders) == 0 {
		return nil
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	ldflags := "-s -w"
	for _, variable := range []string{module + "/cmd/internal/verb.Linked", module + "/functions/cli.Version", "main.version"} {
		ldflags += " -X " + variable + "=" + version
	}
	args := append([]string{"build", "-trimpath", "-ldflags", ldflags, "-o", into + string(filepath.Separator)},
		slices.Sorted(maps.Keys(folders))...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s: %w\n%s", arch, err, bytes.TrimSpace(out))
	}
	return nil
}

func labels(title, version, revision string) map[string]string {
	const prefix = "org.opencontainers.image."
	all := map[string]string{
		prefix + "title": title, prefix + "version": version, prefix + "source": "https://" + module, prefix + "licenses": "Apache-2.0",
	}
	if revision != "" {
		all[prefix+"revision"] = revision
	}
	return all
}

// git returns "" on failure.
func git(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
