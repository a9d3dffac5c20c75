package cli

import (
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List functions with their state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var list []admin.Function
			if err := c.Call(cmd.Context(), http.MethodGet, admin.PathFunctions, nil, &list); err != nil {
				return err
			}
			return render.PrintList(cmd, list)
		},
	}
	render.ListFlag(cmd)
	return cmd
}

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show all that is known of a function",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var f admin.Function
			if err := c.Call(cmd.Context(), http.MethodGet, functionPath(args[0], ""), nil, &f); err != nil {
				return err
			}
			return render.Print(cmd, f, func(w io.Writer) error { return render.Describe(w, f) })
		},
	}
	render.Flag(cmd)
	return cmd
}
