package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

func listCommand() *cobra.Command {
	cmd := shared.Command(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List functions with their state",
		Args:    cobra.NoArgs,
	}, "", func(cmd *cobra.Command, s *verb.Server, _ []string) error {
		var list []admin.Function
		if err := s.Call(cmd.Context(), http.MethodGet, admin.PathFunctions, nil, &list); err != nil {
			return err
		}
		return render.PrintList(cmd, list)
	})
	render.Flag(cmd, "text", "wide", "json", "yaml")
	return cmd
}

func describeCommand() *cobra.Command {
	cmd := shared.Command(&cobra.Command{
		Use: "describe NAME", SuggestFor: []string{"show", "inspect"},
		Short: "Show all that is known of a function",
		Args:  cobra.ExactArgs(1),
	}, ofFunction, func(cmd *cobra.Command, s *verb.Server, args []string) error {
		path, err := functionPath(args[0], "")
		if err != nil {
			return err
		}
		return verb.Show(cmd, s, path, render.Describe)
	})
	render.Flag(cmd)
	return cmd
}
