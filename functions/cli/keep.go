package cli

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/shim"
)

func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use: shim.Args()[0], Short: "Be the parent of a function's runtime; a function starts it", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return shim.Run(cmd.Context(), shim.Config{In: os.Stdin, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))})
		},
	}
}
