package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/internal/flagset"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config"
)

func applyCommand() *cobra.Command {
	var f struct {
		Files  []string `flag:"file,f" help:"manifest, or a folder of them; - is standard input (repeatable)"`
		Models []string `flag:"model" help:"<model> to declare a function of; NAME=MODEL gives it a name (repeatable)"`
		Save   bool     `flag:"save" help:"keep them for the next server"`
	}
	cmd := &cobra.Command{
		Use:         "apply -f FILE|--model MODEL … [--save]",
		Annotations: map[string]string{verb.Changes: ""},
		Short:       "Declare functions, or change them",
		Long: `Declare the functions of manifests, or of models as rouse up --model takes them, at the server that runs here, or
change them. With --save they are kept in $XDG_CONFIG_HOME/rouse (~/.config), a file each, which rouse up reads: paths
of models are made whole. Where no server runs they are only kept.`,
		Example: `  rouse apply -f functions.yaml
  rouse apply --save --model hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0`,
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(f.Files)+len(f.Models) == 0 {
				return errors.New("say what to declare: -f FILE or --model MODEL")
			}
			all, err := toApply(f.Files, f.Models)
			if err != nil {
				return err
			}
			c, err := dial(cmd)
			if err != nil && !(f.Save && errors.Is(err, errNoServer)) {
				return err
			}
			for _, m := range all {
				if err := applyOne(cmd, c, m, f.Save); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flagset.Add(cmd.Flags(), &f)
	return cmd
}

func toApply(files, models []string) (all []config.Manifest, err error) {
	var functions []api.Function
	for _, path := range files {
		inside, err := manifestFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range inside {
			some, err := config.Portable(file)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	for _, ref := range models {
		f, err := catalog.Resolve(ref, "rouse apply", catalog.StoreOf(os.Getenv), catalog.FindGPU)
		if err != nil {
			return nil, err
		}
		m, err := config.ManifestOf(f)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	for _, m := range all {
		functions = append(functions, m.Function)
	}
	return all, config.CheckUnique(functions)
}

// applyOne declares a function, unless c is nil: no server runs. With save it then keeps it, unless the server has refused it.
func applyOne(cmd *cobra.Command, c *client, m config.Manifest, save bool) error {
	f := m.Function
	kept := ""
	if save {
		var err error
		if kept, err = keptPath(f.Name); err != nil {
			return err
		}
		f.Origin = kept // as reading it there gives
	}
	result := "kept"
	if c != nil {
		var done admin.Declared
		if err := c.Call(cmd.Context(), http.MethodPost, admin.PathFunctions, f, &done); err != nil {
			return fmt.Errorf("apply %s: %w", f.Name.Short(), err)
		}
		result = done.Result
		if done.Problem != "" {
			fmt.Fprintf(render.Harmless(cmd.ErrOrStderr()), "rouse: %s can't start as things are: %s\n", f.Name.Short(), done.Problem)
		}
		for _, lost := range slices.Concat(done.LostNames, done.WrongFallbacks) {
			fmt.Fprintln(cmd.ErrOrStderr(), "rouse:", lost)
		}
	}
	if save {
		if err := keepManifest(m); err != nil {
			return err
		}
		result += " in " + shortPath(kept)
		if c != nil {
			result = strings.Replace(result, " in ", ", kept in ", 1)
		}
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", f.Name.Short(), result)
	return err
}

func removeCommand() *cobra.Command {
	var save bool
	cmd := &cobra.Command{
		Use:         "rm NAME …",
		Annotations: map[string]string{verb.Changes: ""},
		Short:       "Remove functions: requests that run finish, those that wait are refused",
		Long: `Remove functions: requests that run finish, those that wait are refused. What was kept with rouse apply --save is
there again at the next start, unless --save removes it too.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := dial(cmd)
			if err != nil && !(save && errors.Is(err, errNoServer)) {
				return err
			}
			for _, name := range names {
				if err := removeOne(cmd, c, name, save); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&save, "save", false, "remove what was kept of them too")
	return cmd
}

// removeOne removes a function, if c is not nil, and with save its kept manifest.
func removeOne(cmd *cobra.Command, c *client, name string, save bool) error {
	path, err := functionPath(name, "")
	if err != nil {
		return err
	}
	f := functionOf(name)
	kept, _ := keptPath(f)
	_, missing := os.Stat(kept)
	forgotten := false
	if save {
		if forgotten, err = forgetKept(f); err != nil {
			return err
		}
	}
	switch {
	case c == nil && !forgotten:
		return fmt.Errorf("nothing is kept of %s", name)
	case c != nil:
		if err := c.Call(cmd.Context(), http.MethodDelete, path, nil, nil); err != nil {
			var refused *api.Error
			if !forgotten || !errors.As(err, &refused) || refused.Status != http.StatusNotFound { // else a watching server was faster
				return err
			}
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", name)
	if !save && kept != "" && missing == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "it is kept in %s, and there again at the next start: rouse rm --save %s removes it there\n", shortPath(kept), name)
	}
	return err
}
