package cli

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/shim"
)

func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use: shim.Args()[0], Short: "Be the parent of a function's runtime; a function starts it", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return Keep(cmd.Context(), cmd.ErrOrStderr()) },
	}
}

// Keep is the command keep, for a program that calls it before it builds a tree of commands: there is one for each runtime.
func Keep(ctx context.Context, stderr io.Writer) error {
	return shim.Run(ctx, shim.Config{In: os.Stdin, Logger: slog.New(slog.NewTextHandler(stderr, nil))})
}
