package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// modelsCommand looks after the cache that fetched models lie in. It needs no server.
func modelsCommand() *cobra.Command {
	var dir string
	open := func() (*fetch.Cache, error) {
		cfg := fetch.Environment(os.Getenv)
		if dir != "" {
			cfg.Dir = dir
		}
		return fetch.New(cfg)
	}
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List models that were fetched; remove them",
		Long: `Models that are named by a URL (https, hf, oci, s3, ollama) are fetched once, into a
cache that all functions of this machine share. What a running function uses is
never removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := open()
			if err != nil {
				return err
			}
			list, err := cache.List(cmd.Context())
			if err != nil {
				return err
			}
			return render.Print(cmd, list, func(w io.Writer) error {
				rows := [][]string{{"MODEL", "SIZE", "LAST USED", "IN USE"}}
				for _, e := range list {
					used := "no"
					if e.InUse {
						used = "yes"
					}
					rows = append(rows, []string{e.Ref, e.Size.String(), render.Ago(e.Used), used})
				}
				return render.Table(w, rows)
			})
		},
	}
	cmd.PersistentFlags().StringVar(&dir, "models", "", "the cache's `folder` (default: $ROUSE_CACHE, else rouse/models in the user's cache)")
	render.Flag(cmd)
	cmd.AddCommand(&cobra.Command{
		Use: "rm MODEL", Short: "Remove a model, named as in the list", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := open()
			if err != nil {
				return err
			}
			n, err := cache.Remove(cmd.Context(), args[0])
			return freed(cmd, n, err)
		},
	})
	cmd.AddCommand(pruneCommand(open))
	return cmd
}

func pruneCommand(open func() (*fetch.Cache, error)) *cobra.Command {
	var limit string
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove what was not used for longest, until the rest fits into a limit", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			most, err := api.ParseBytes(limit)
			if err != nil {
				return fmt.Errorf("--limit: %w", err)
			}
			cache, err := open()
			if err != nil {
				return err
			}
			n, err := cache.Prune(cmd.Context(), most)
			return freed(cmd, n, err)
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "0", "`size` of what may stay, such as 50Gi; 0: only what is in use")
	return cmd
}

// freed says how much was removed.
func freed(cmd *cobra.Command, n api.Bytes, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "freed %s\n", n)
	}
	return err
}
