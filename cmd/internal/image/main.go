// Command image builds Rouse's container images without Docker.
//
//	go run ./cmd/internal/image                                  bin/rouse-images.tar, for this machine's architecture
//	go run ./cmd/internal/image -o all.tar activator function    only these
//	go run ./cmd/internal/image --push ghcr.io/me --tag v1.2.0   to a registry, for amd64 and arm64
//	go run ./cmd/internal/image --push ghcr.io/me --onto vllm=vllm/vllm-openai:v0.11.0   a runtime's image with the function in front
//	go run ./cmd/internal/image --add dev.local/probe:v1=./probe a static program of one's own beside them
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/internal/flagset"
	"github.com/rouse-dev/rouse/internal/pack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type options struct {
	Out      string   `flag:"output,o" help:"the <file> to write"`
	Push     string   `flag:"push" help:"push to this <registry> instead, such as ghcr.io/me"`
	Prefix   string   `flag:"prefix" help:"what stands before the names in a file; Knative asks no registry for dev.local"`
	Tag      string   `flag:"tag" help:"the images' tag"`
	Version  string   `flag:"version" help:"the programs' version (default: git describe)"`
	Arch     []string `flag:"arch" split:"" help:"architectures (default: this machine's for a file, amd64 and arm64 for a registry)"`
	Add      []string `flag:"add" help:"a further image <NAME:TAG=PROGRAM> with one static program of this machine's architecture"`
	Onto     []string `flag:"onto" help:"a further image <RUNTIME=IMAGE>: rouse-RUNTIME, which is IMAGE with the function in front of it; without names, these are all"`
	products []product
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rouse-image-")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer os.RemoveAll(dir)
	var images []pack.Image
	for _, arch := range o.Arch {
		built, err := o.build(ctx, dir, arch)
		if err != nil {
			return err
		}
		images = append(images, built...)
	}
	if o.Push != "" {
		digests, err := pack.Push(ctx, images)
		for _, i := range images {
			if d, found := digests[i.Name]; found {
				fmt.Fprintf(stdout, "%s@%s\n", i.Name, d)
				delete(digests, i.Name)
			}
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return fmt.Errorf("write the images: %w", err)
	}
	if err := pack.Write(o.Out, images); err != nil {
		return err
	}
	for _, i := range images {
		fmt.Fprintln(stdout, i.Name)
	}
	fmt.Fprintf(stdout, "are in %s: ctr -n k8s.io images import %[1]s, or docker load -i %[1]s\n", o.Out)
	return nil
}

func parse(args []string) (options, error) {
	o := options{Out: "bin/rouse-images.tar", Prefix: "dev.local", Tag: "v1"}
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	flagset.Add(flags, &o)
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: go run ./cmd/internal/image [flags] [%s …]\n\n%s", strings.Join(names(), "|"), flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.Push != "" {
		o.Prefix = strings.TrimSuffix(o.Push, "/")
	}
	if len(o.Arch) == 0 {
		o.Arch = []string{runtime.GOARCH}
		if o.Push != "" {
			o.Arch = []string{"amd64", "arm64"}
		}
	}
	for _, a := range o.Arch {
		if !slices.Contains([]string{"amd64", "arm64"}, a) {
			return o, fmt.Errorf("--arch %s: want amd64 or arm64", a)
		}
	}
	if o.Push == "" && len(o.Arch) > 1 {
		return o, errors.New("--arch: a file holds one architecture: give one, or --push to a registry")
	}
	if flags.NArg() == 0 && len(o.Onto) > 0 {
		return o, nil
	}
	var err error
	o.products, err = choose(flags.Args())
	return o, err
}
