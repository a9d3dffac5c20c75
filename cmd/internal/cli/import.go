package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config"
)

func importCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import llama-swap FILE | import ollama [FOLDER|URL]",
		Short: "Make a manifest of what llama-swap or Ollama serves",
		Long: `Make a manifest for rouse up -f, on standard output or in a file, of what another program serves here. What
can't be kept of its settings goes to standard error, a line each, with the reason. Nothing of the other program is
changed. On a machine with a GPU each function takes one: lower rouse.dev/device-memory where several fit.

Of llama-swap's configuration, config.yaml, commands are kept with their macros and ports, environments, names and
aliases, ttl, limits of concurrency, timeouts and persistent groups. ${env.NAME} is replaced by the variable of this shell.

Of Ollama's store, the usual one ($OLLAMA_MODELS, ~/.ollama/models) or that in FOLDER, each model is served where it lies,
by Ollama or by another runtime that suits this machine. Without a store, or with a URL, the Ollama that runs there
($OLLAMA_HOST) is asked, and goes on serving its models, behind Rouse.`,
		Example: `  rouse import llama-swap config.yaml --out functions.yaml
  rouse import ollama --out functions.yaml
  rouse up -f functions.yaml`,
		Args:      cobra.RangeArgs(1, 2),
		ValidArgs: []string{"llama-swap", "ollama"},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var functions []api.Function
			var left []catalog.Skipped
			switch {
			case args[0] == "llama-swap" && len(args) == 2:
				functions, left, err = catalog.LlamaSwap(args[1], catalog.FindGPU())
			case args[0] == "ollama":
				functions, left, err = fromOllama(cmd, append(args, "")[1])
			default:
				err = fmt.Errorf("want %s", cmd.UseLine())
			}
			if err != nil {
				return err
			}
			return writeManifest(cmd, out, functions, left)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` to write the manifest to, for you alone; one that exists is left alone (default: standard output)")
	return cmd
}

func fromOllama(cmd *cobra.Command, from string) (functions []api.Function, left []catalog.Skipped, err error) {
	store := catalog.StoreOf(func(name string) string {
		if from != "" && name == "OLLAMA_MODELS" {
			return from
		}
		return os.Getenv(name)
	})
	if store != nil {
		functions, left = store.Functions(catalog.FindGPU)
		models, _ := store.Models()
		for _, m := range models {
			if f, err := m.Function("", catalog.FindGPU); err == nil && m.Ignores != "" && f.Runtime.Kind != api.RuntimeOllama {
				left = append(left, catalog.Skipped{What: m.Name, Why: errors.New(m.Ignores)})
			}
		}
		return functions, left, nil
	}
	e, err := api.ParseEndpoint(cmp.Or(from, os.Getenv("OLLAMA_HOST"), "127.0.0.1:11434"))
	if err != nil {
		return nil, nil, fmt.Errorf("want a store of Ollama's, a folder with manifests in it, or the URL of an Ollama: %w", err)
	}
	var has struct{ Models []struct{ Name string } }
	if err := newClient(e, "").Call(cmd.Context(), http.MethodGet, "/api/tags", nil, &has); err != nil {
		return nil, nil, fmt.Errorf("there is no store of Ollama's here, and it does not answer: %w", err)
	}
	var names []string
	for _, m := range has.Models {
		names = append(names, m.Name)
	}
	functions, left = catalog.Attached(names, e, catalog.FindGPU())
	return functions, left, nil
}

func writeManifest(cmd *cobra.Command, out string, functions []api.Function, left []catalog.Skipped) error {
	var text bytes.Buffer
	n := 0
	for _, f := range functions {
		m, err := config.ManifestOf(f)
		if err == nil {
			_, err = config.Parse(bytes.NewReader(m.YAML), f.Name.Short(), ".")
		}
		if err != nil {
			left = append(left, catalog.Skipped{What: f.Name.Short(), Why: err})
			continue
		}
		n++
		text.WriteString("---\n")
		text.Write(m.YAML)
	}
	errs := render.Harmless(cmd.ErrOrStderr())
	for _, l := range left {
		fmt.Fprintln(errs, l)
	}
	if n == 0 {
		return errors.New("nothing of it can be served")
	}
	if out == "" {
		_, err := render.Harmless(cmd.OutOrStdout()).Write(text.Bytes())
		return err
	}
	if err := writeNew(out, text.Bytes()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	fmt.Fprintf(errs, "%d functions are in %s:  %s up -f %s\n", n, out, program(), out)
	return nil
}

// writeNew writes a new file, which only this user can read.
func writeNew(path string, content []byte) error {
	file, err := verb.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
