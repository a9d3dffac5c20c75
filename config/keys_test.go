package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

var update = flag.Bool("update", false, "write the documents that are made from code")

// TestKeysAreDocumented compares docs/keys.md with the table of keys.
func TestKeysAreDocumented(t *testing.T) {
	const path = "../docs/keys.md"
	var want strings.Builder
	fmt.Fprintf(&want, `# Keys of a manifest

A function is a plain Knative Service. Rouse reads these keys of its revision template
(`+"`spec.template.metadata.annotations`"+`), the container's image, command, args, env and resources,
`+"`containerConcurrency`"+`, `+"`timeoutSeconds`, `responseStartTimeoutSeconds`"+` and `+"`idleTimeoutSeconds`"+`. An unknown `+"`rouse.dev/`"+` key is an error that names the
nearest known one. This page is made from `+"`config/keys.go`"+` by `+"`make keys`"+`.

| key | default | meaning |
|---|---|---|
`)
	for _, k := range config.Keys(&api.Function{}) {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", k.Name, k.Default, k.Doc)
	}
	fmt.Fprintf(&want, `
The environment variables %s and %s of the container mean the same as the annotations
%s and %s, which win.
`, config.EnvRuntime, config.EnvModel, config.AnnotationRuntime, config.AnnotationModel)
	if *update {
		if err := os.WriteFile(path, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `make keys`", err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/keys.md is out of date, run `make keys` (-want +got):\n%s", diff)
	}
}
