package kn

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
)

func traceCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "trace NAME",
		Short: "Show the last wake of a function step by step",
		Long: `Show the last wake of a function step by step: from the arrival of the request that
found nobody awake to the first byte of its answer, in the activator, the autoscaler, the
pod, and, where pods claim GPUs for others, in Kubernetes.

The trace's ID is that of the OpenTelemetry trace, which is exported where
OTEL_EXPORTER_OTLP_ENDPOINT is set.`,
		Example: `  kn rouse trace tiny
  kn rouse trace tiny --all`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			s, err := c.find(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			list, served := []api.Outline{}, false
			for _, r := range s.Revisions {
				if r.Function == nil {
					continue
				}
				served = true
				var some []api.Outline
				if err := d.call(cmd.Context(), http.MethodGet, admin.FunctionPath(r.Name, "/wakes"), &some); err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				list = append(list, some...)
			}
			if !served {
				return errUnserved(s)
			}
			slices.SortStableFunc(list, func(a, b api.Outline) int { return a.Start.Compare(b.Start) })
			return render.PrintWakes(cmd, args[0], list, all)
		},
	}
	namespaceFlags(cmd, false)
	render.WakeFlags(cmd, &all)
	return cmd
}
