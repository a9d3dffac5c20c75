package kn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
)

func whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "why NAME",
		Short:   "Print the autoscaler's last decisions about a function, with reasons",
		Example: `  kn rouse why tiny`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			s, err := c.find(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			decisions, served := []api.Decision{}, false
			for _, r := range s.Revisions {
				if r.Function == nil {
					continue
				}
				served = true
				var some []api.Decision
				if err := d.call(cmd.Context(), http.MethodGet, admin.FunctionPath(r.Name, "/why"), &some); err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				decisions = append(decisions, some...)
			}
			if !served {
				return errUnserved(s)
			}
			slices.SortStableFunc(decisions, func(a, b api.Decision) int { return a.At.Compare(b.At) })
			return render.Print(cmd, decisions, func(w io.Writer) error { return render.Decisions(w, decisions) })
		},
	}
	namespaceFlags(cmd, false)
	render.Flag(cmd)
	return cmd
}

func eventsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "events [NAME]",
		Short: "Print CloudEvents: demand, states and decisions",
		Long: `Print the CloudEvents of a function or, without a name, of a namespace: what is
asked of functions, the states of their pods, and what the autoscaler decides.`,
		Example: `  kn rouse events -f
  kn rouse events tiny --tail 20 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			keep := func(e api.Event) bool { return c.all || api.FunctionName(e.Subject).Namespace() == c.namespace }
			of := ""
			if len(args) == 1 {
				s, err := c.find(cmd.Context(), d, args[0])
				if err != nil {
					return err
				}
				// The autoscaler knows the revisions of a Service, those that come later too.
				of, keep = "&function="+string(s.meant(args[0])), nil
			}
			resp, err := d.open(cmd.Context(), http.MethodGet, fmt.Sprintf("%s?tail=%d&follow=%t%s", control.PathEvents, tail, follow, of), nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			err = render.Events(cmd, resp.Body, keep)
			if follow && (errors.Is(err, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF)) {
				return nil // the person left, or the leader changed
			}
			return err
		},
	}
	namespaceFlags(cmd, true)
	render.EventFlag(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	cmd.Flags().IntVar(&tail, "tail", 100, "`events` to begin with, those of others counted")
	return cmd
}
