package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

func adaptersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapters",
		Short: "Change a function's LoRA adapters while it serves",
		Long: `Change a function's LoRA adapters while it serves: its instances load and unload
them without a restart. Clients name an adapter as the model. A runtime that takes adapters
at its start only is started anew, while requests that run finish.

What is changed holds until the server ends: rouse.dev/adapters in a manifest is for good.`,
	}
	cmd.AddCommand(addAdapterCommand(), removeAdapterCommand(), listAdaptersCommand())
	return cmd
}

func addAdapterCommand() *cobra.Command {
	return shared.Command(&cobra.Command{
		Use:         "add NAME ADAPTER=REFERENCE …",
		Annotations: map[string]string{verb.Changes: ""},
		Short:       "Add adapters to a function, or change where they come from",
		Long: `Add adapters to a function, or change where they come from. A reference is fetched
(hf://, https://, oci://, s3://, file://); a path that begins with ./ or ../ counts from here,
any other relative one from rouse.dev/adapter-root, and where there is such a folder each must
lie in it.`,
		Example: `  rouse adapters add pico loud=pico/shout`,
		Args:    cobra.MinimumNArgs(2),
	}, ofFunction, func(cmd *cobra.Command, c *verb.Server, args []string) error {
		adapters, err := functionPath(args[0], "/adapters")
		if err != nil {
			return err
		}
		var list []api.Adapter
		for _, pair := range args[1:] {
			name, path, found := strings.Cut(pair, "=")
			if !found || name == "" || path == "" {
				return fmt.Errorf("%q: want ADAPTER=REFERENCE", pair)
			}
			if strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../") {
				if path, err = filepath.Abs(path); err != nil {
					return err
				}
			}
			list = append(list, api.Adapter{Name: api.ModelName(name), Path: path})
		}
		for _, a := range list {
			var done admin.Adapter
			if err := c.Call(cmd.Context(), http.MethodPost, adapters, a, &done); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s\n", done.Name, done.Result, adapterState(done))
		}
		return nil
	})
}

func removeAdapterCommand() *cobra.Command {
	return shared.Command(&cobra.Command{
		Use:         "rm NAME ADAPTER …",
		Annotations: map[string]string{verb.Changes: ""},
		Short:       "Remove adapters: requests that use them finish",
		Args:        cobra.MinimumNArgs(2),
	}, ofFunction, func(cmd *cobra.Command, c *verb.Server, args []string) error {
		adapters, err := functionPath(args[0], "/adapters/")
		if err != nil {
			return err
		}
		for _, name := range args[1:] {
			if err := c.Call(cmd.Context(), http.MethodDelete, adapters+url.PathEscape(name), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s removed\n", name)
		}
		return nil
	})
}

func listAdaptersCommand() *cobra.Command {
	cmd := shared.Command(&cobra.Command{
		Use:     "ls NAME",
		Aliases: []string{"list"},
		Short:   "List a function's adapters with their state",
		Args:    cobra.ExactArgs(1),
	}, ofFunction, func(cmd *cobra.Command, s *verb.Server, args []string) error {
		adapters, err := functionPath(args[0], "/adapters")
		if err != nil {
			return err
		}
		return verb.Show(cmd, s, adapters, func(w io.Writer, list []admin.Adapter) error {
			rows := render.Rows{{"ADAPTER", "STATE", "INSTANCES", "FROM"}}
			for _, a := range list {
				rows.Add(a.Name, adapterState(a), render.Joined(append(a.Loaded, a.Standby...), ", "), cmp.Or(a.Path, "the runtime"))
			}
			return render.Table(w, rows)
		})
	})
	render.Flag(cmd)
	return cmd
}

// adapterState returns the most advanced state in any instance.
func adapterState(a admin.Adapter) string {
	switch {
	case len(a.Loaded) > 0:
		return "loaded"
	case len(a.Standby) > 0:
		return "standby"
	}
	return "pending" // an instance that starts or wakes loads it
}
