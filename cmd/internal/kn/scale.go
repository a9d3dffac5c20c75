package kn

import (
	"bytes"
	"encoding/json"
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
requests are held and nobody is woken for them. After the time demand decides again.
Of a Service the revision with the most traffic is scaled; name a revision to
scale that one.`,
		Example: `  kn rouse scale tiny 2 --for 10m`,
		Args:    cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := render.Replicas(args[1])
		if err != nil {
			return err
		}
		return eachService(func(cmd *cobra.Command, d *door, s *Service) error {
			for _, r := range s.Revisions {
				if r.Function == nil {
					continue
				}
				body, err := json.Marshal(admin.Scale{Replicas: n, For: lifetime.String(), By: "kn rouse scale"})
				if err != nil {
					return err
				}
				var f admin.Function
				if err := d.send(cmd.Context(), http.MethodPost, admin.FunctionPath(r.Name, "/scale"), bytes.NewReader(body), &f); err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n", render.Scaled(s.Name.Name(), f), r.Name.Name())
				return err
			}
			return errUnserved(s)
		})(cmd, args[:1])
	}
	namespaceFlags(cmd, false)
	cmd.SetFlagErrorFunc(render.ReplicasBelow0)
	cmd.Flags().DurationVar(&lifetime, "for", 0, "how long; after that demand decides again")
	_ = cmd.MarkFlagRequired("for") // fails only for a flag that does not exist
	return cmd
}
