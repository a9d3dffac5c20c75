package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/functions/fetch"
)

func modelsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List models that lie on this machine; remove those that were fetched",
		Long: `Models that are named by a URL (https, hf, oci, s3, ollama) are fetched once, into a
cache ($ROUSE_CACHE) that all functions of this machine share. What a running function uses is
never removed. Beside them lie folders of functions: snapshots/NAME of processes, and what
model servers have compiled, compiled/NAME. Models that Ollama has pulled are listed too, with
what serves them; nothing of its store is ever changed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := fetch.New(fetch.Environment(os.Getenv))
			if err != nil {
				return err
			}
			list, err := listed(cmd, cache)
			if err != nil {
				return err
			}
			return render.Print(cmd, list, func(w io.Writer, list []listedModel) error {
				rows := render.Rows{{"MODEL", "SIZE", "LAST USED", "IN USE", "FROM"}}
				columns := 4 // without Ollama's
				for _, m := range list {
					rows.Add(m.row()...)
					if m.From != fromCache {
						columns = len(rows[0])
					}
				}
				for i := range rows {
					rows[i] = rows[i][:columns]
				}
				if n := cache.Unfinished(); n > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s of unfinished fetches: the same rouse pull goes on with them, rouse models prune removes them\n", n)
				}
				return render.Table(w, rows)
			})
		},
	}
	render.Flag(cmd)
	cmd.AddCommand(&cobra.Command{
		Use: "rm MODEL", Short: "Remove a model or a folder, named as in the list", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := fetch.New(fetch.Environment(os.Getenv))
			if err != nil {
				return err
			}
			n, err := cache.Remove(cmd.Context(), args[0])
			return freed(cmd, n, err)
		},
	})
	cmd.AddCommand(pruneCommand())
	return cmd
}

const fromCache = "cache"

type listedModel struct {
	fetch.Entry
	// From is "cache" or "ollama".
	From   string `json:"from"`
	Serves string `json:"serves,omitempty"`
	// Not says why our engine does not serve it, if one could expect it to.
	Not string `json:"notByEngine,omitempty"`
}

func listed(cmd *cobra.Command, cache *fetch.Cache) ([]listedModel, error) {
	entries, err := cache.List(cmd.Context())
	if err != nil {
		return nil, err
	}
	list := []listedModel{}
	for _, e := range entries {
		list = append(list, listedModel{Entry: e, From: fromCache})
	}
	store := catalog.StoreOf(os.Getenv)
	if store == nil {
		return list, nil
	}
	models, left := store.Models()
	for _, m := range models {
		l := listedModel{Entry: fetch.Entry{Ref: m.Name, Size: m.Size}, From: "ollama"}
		if m.Engine != nil {
			l.Not = m.Engine.Error()
		}
		if f, err := m.Function("", catalog.FindGPU); err == nil {
			l.Serves = f.Runtime.Kind
		}
		list = append(list, l)
	}
	for _, l := range left {
		fmt.Fprintln(render.Harmless(cmd.ErrOrStderr()), "rouse:", l)
	}
	return list, nil
}

func (m listedModel) row() []any {
	if m.From == fromCache {
		used := "no"
		if m.InUse {
			used = "yes"
		}
		return []any{m.Ref, m.Size, render.Ago(m.Used), used, "the cache"}
	}
	from := "Ollama's store, served by " + cmp.Or(m.Serves, "nothing here")
	if m.Not != "" {
		from += ": " + m.Not
	}
	return []any{m.Ref, m.Size, "-", "-", from}
}

func pruneCommand() *cobra.Command {
	var most api.Bytes
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove what was not used for longest, until the rest fits into a limit", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := fetch.New(fetch.Environment(os.Getenv))
			if err != nil {
				return err
			}
			n, err := cache.Prune(cmd.Context(), most)
			return freed(cmd, n, err)
		},
	}
	addParsed(cmd.Flags(), &most, "limit", "0", "`size` of what may stay, such as 50Gi; 0: only what is in use", api.ParseBytes)
	return cmd
}

func freed(cmd *cobra.Command, n api.Bytes, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "freed %s\n", n)
	}
	return err
}
