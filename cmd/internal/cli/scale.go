package cli

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
)

func scaleCommand() *cobra.Command {
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "scale NAME REPLICAS --for DURATION",
		Short: "Have so many instances of a function awake for a time, whatever the demand",
		Long: `Have so many instances of a function awake for a time, whatever the demand: fewer
are woken or started, more go to sleep, within min-scale and max-scale. With 0
requests are held and nobody is woken for them. After the time demand decides again.`,
		Example: `  rouse scale pico 2 --for 10m`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := render.Replicas(args[1])
			if err != nil {
				return err
			}
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var f admin.Function
			if err := c.call(cmd.Context(), http.MethodPut, functionPath(args[0], "/scale"), admin.Scale{Replicas: n, For: lifetime.String(), By: "rouse scale"}, &f); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), render.Scaled(args[0], f))
			return err
		},
		ValidArgsFunction: functionNames,
	}
	cmd.SetFlagErrorFunc(render.ReplicasBelow0)
	cmd.Flags().DurationVar(&lifetime, "for", 0, "how long; after that demand decides again")
	_ = cmd.MarkFlagRequired("for") // fails only for a flag that does not exist
	return cmd
}
