// Command chart generates the Helm chart from the files of package manifests, or with --objects one of the overlays for
// kubectl.
//
//	go run ./cmd/internal/chart --version v1.2.0 -o dist/rouse      a folder: helm install rouse dist/rouse -n knative-serving
//	go run ./cmd/internal/chart --version v1.2.0 --objects default  the objects, on standard output
//
// Overlays and components are values of the chart. All combinations are rendered: an object that differs is included
// once for each form, between conditions.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/manifests"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := pflag.NewFlagSet("chart", pflag.ContinueOnError)
	out := flags.StringP("output", "o", "bin/chart", "the `folder` to write")
	version := flags.String("version", "v0.0.0-dev", "the version of the chart and of the images")
	registry := flags.String("registry", "ghcr.io/rouse-dev", "the registry and folder of the images")
	objects := flags.String("objects", "", "write the objects of this `overlay` instead")
	added := flags.StringSlice("components", nil, "with these `components`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *objects != "" {
		images := map[string]string{}
		for _, name := range programs {
			images[local+name] = *registry + "/" + name + ":" + *version
		}
		text, err := manifests.Render(*objects, images, *added...)
		if err != nil {
			return err
		}
		_, err = stdout.Write(text)
		return err
	}
	files, err := chart(*version, *registry)
	if err != nil {
		return err
	}
	for name, content := range files {
		at := filepath.Join(*out, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	return nil
}
