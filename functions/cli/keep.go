package cli

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/keeper"
)

// keepCommand is the keeper of another function: see package keeper.
func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeper.Args()[0], Short: "Be the parent of a function's runtime; a function starts it", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return keeper.Run(cmd.Context(), keeper.Config{In: os.Stdin, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))})
		},
	}
}
