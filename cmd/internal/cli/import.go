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
	"github.com/rouse-dev/rouse/config"
)

func importCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Make a manifest of what llama-swap or Ollama serves",
		Long: `Make a manifest for rouse up -f, on standard output or in a file, of what another program serves here. What
can't be kept of its settings goes to standard error, a line each, with the reason. Nothing of the other program is
changed. On a machine with a GPU each function takes one: lower rouse.dev/device-memory where several fit.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&out, "out", "", "`file` to write the manifest to, for you alone; one that exists is left alone (default: standard output)")
	cmd.AddCommand(&cobra.Command{
		Use:   "llama-swap FILE",
		Short: "Make a manifest of llama-swap's configuration",
		Long: `Make a manifest of llama-swap's config.yaml: commands with their macros and ports, environments, names and aliases,
ttl, limits of concurrency, timeouts and persistent groups. Variables (${env.NAME}) are replaced by those of this shell.`,
		Example: `  rouse import llama-swap config.yaml --out functions.yaml
  rouse up -f functions.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			functions, left, err := catalog.LlamaSwap(args[0], catalog.FindGPU())
			if err != nil {
				return err
			}
			return writeManifest(cmd, out, functions, left)
		},
	}, &cobra.Command{
		Use:   "ollama [FOLDER|URL]",
		Short: "Make a manifest of the models that Ollama has here",
		Long: `Make a manifest of the models in Ollama's store: the usual one ($OLLAMA_MODELS, ~/.ollama/models) or that in FOLDER. They
are served where they lie, by Ollama or by another runtime that suits this machine. Without a store, or with a URL, the Ollama that runs there
($OLLAMA_HOST) is asked, and goes on serving them, behind Rouse.`,
		Example: `  rouse import ollama --out functions.yaml`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			functions, left, err := fromOllama(cmd, args)
			if err != nil {
				return err
			}
			return writeManifest(cmd, out, functions, left)
		},
	})
	return cmd
}

// fromOllama declares the models of a store, or of a server if there is no store.
func fromOllama(cmd *cobra.Command, args []string) (functions []api.Function, left []catalog.Skipped, err error) {
	from := cmp.Or(append(args, "")...)
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
			if m.Ignores != "" && m.Engine == nil {
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
	for _, m := range has.Models {
		f, err := config.ForModel("m=ollama://"+m.Name, string(e))
		f.Runtime.Model, f.Runtime.Endpoint, f.Memory.Devices = m.Name, e, catalog.FindGPU().Devices
		if err == nil {
			f, err = config.Named(f, m.Name)
		}
		if err != nil {
			left = append(left, catalog.Skipped{What: m.Name, Why: err})
			continue
		}
		functions = append(functions, f)
	}
	return functions, left, nil
}

// writeManifest writes the manifest of functions, and lists what was left out.
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
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.Write(text.Bytes())
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	fmt.Fprintf(errs, "%d functions are in %s:  %s up -f %s\n", n, out, program(), out)
	return nil
}
