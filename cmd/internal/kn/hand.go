package kn

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
)

func wakeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wake NAME …",
		Short: "Wake functions and wait until they are awake",
		Long: `Wake functions and wait until they are awake. Of a Service the revision with the
most traffic is woken; name a revision to wake that one.`,
		Example: `  kn rouse wake tiny`,
		Args:    cobra.MinimumNArgs(1),
		RunE: eachService(func(cmd *cobra.Command, d *door, s *Service) error {
			for _, r := range s.Revisions {
				if r.Function != nil {
					return d.order(cmd, s, r, "/wake")
				}
			}
			return errUnserved(s)
		}),
	}
	namespaceFlags(cmd, false)
	return cmd
}

func sleepCommand() *cobra.Command {
	var level int
	var gone bool
	cmd := &cobra.Command{
		Use:   "sleep NAME …",
		Short: "Put functions to sleep and wait until they sleep",
		Long: `Put functions to sleep and wait until they sleep. Of a Service every revision
that has pods is put to sleep. It is refused while requests wait.`,
		Example: `  kn rouse sleep tiny
  # drop the weights too
  kn rouse sleep tiny --level 2
  # no pod stays
  kn rouse sleep tiny --gone`,
		Args: cobra.MinimumNArgs(1),
		RunE: eachService(func(cmd *cobra.Command, d *door, s *Service) error {
			path := "/sleep"
			switch {
			case gone:
				path = "/stop"
			case level < 0 || level > 2:
				return fmt.Errorf("--level %d: want 1 (the weights stay in host memory) or 2 (they are dropped)", level)
			case level != 0:
				path += fmt.Sprintf("?level=%d", level)
			}
			served, ordered := false, false
			for _, r := range s.Revisions {
				served = served || r.Function != nil
				if r.Function == nil || len(r.Function.Instances) == 0 {
					continue
				}
				ordered = true
				if err := d.order(cmd, s, r, path); err != nil {
					return err
				}
			}
			switch {
			case !served:
				return errUnserved(s)
			case !ordered:
				fmt.Fprintf(cmd.OutOrStdout(), "%s is gone: it has no pods\n", s.Name.Name())
			}
			return nil
		}),
	}
	namespaceFlags(cmd, false)
	cmd.Flags().IntVar(&level, "level", 0, "how deep: 1 keeps weights in host memory, 2 drops them (default: the function's own)")
	cmd.Flags().BoolVar(&gone, "gone", false, "stop the pods altogether; the next request makes new ones")
	cmd.MarkFlagsMutuallyExclusive("level", "gone")
	return cmd
}

// order has the autoscaler do something to a revision, and says what it then is.
func (d *door) order(cmd *cobra.Command, s *Service, r Revision, path string) error {
	var f admin.Function
	if err := d.call(cmd.Context(), http.MethodPost, admin.FunctionPath(r.Name, path), &f); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is %s (%s)\n", s.Name.Name(), render.State(f), r.Name.Name())
	return err
}

// eachService does one thing to each service that is named.
func eachService(do func(*cobra.Command, *door, *Service) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, names []string) error {
		c, d, err := enter(cmd)
		if err != nil {
			return err
		}
		for _, name := range names {
			s, err := c.find(cmd.Context(), d, name)
			if err != nil {
				return err
			}
			if err := do(cmd, d, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// enter connects to the cluster that the flags name, and to the autoscaler in it.
func enter(cmd *cobra.Command) (*cluster, *door, error) {
	c, err := connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	d, err := c.door(cmd.Context())
	return c, d, err
}

// devices reads the account of each device.
func (d *door) devices(ctx context.Context) ([]admin.Device, error) {
	var list []admin.Device
	err := d.call(ctx, http.MethodGet, admin.PathDevices, &list)
	return list, err
}
