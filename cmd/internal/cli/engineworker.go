package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/engine/worker"
)

func engineWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Compute for an engine that is connected as file descriptor 3",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return worker.Main(c.Context(), worker.Build(slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))))
		},
	}
}
