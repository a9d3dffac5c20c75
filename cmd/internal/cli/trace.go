package cli

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show where the time of a wake went",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(traceWakeCommand())
	return cmd
}

func traceWakeCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "wake NAME",
		Short: "Show the last wake of a function step by step",
		Long: `Show the last wake of a function step by step: from the arrival of the request that
found nobody awake to the first byte of its answer.

Steps lie within one another: a request is held while the autoscaler decides, while
another model goes to sleep for it, and while the instance wakes. The trace's ID is that
of the OpenTelemetry trace, which is exported where OTEL_EXPORTER_OTLP_ENDPOINT is set.`,
		Example: `  rouse trace wake pico
  rouse trace wake pico --all
  rouse trace wake pico -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var list []api.Outline
			if err := c.call(cmd.Context(), http.MethodGet, functionPath(args[0], "/wakes"), nil, &list); err != nil {
				return err
			}
			return render.PrintWakes(cmd, args[0], list, all)
		},
	}
	render.WakeFlags(cmd, &all)
	return cmd
}
