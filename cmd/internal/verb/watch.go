package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// Why explains the autoscaler's decisions, or the route of a request.
func (p Program) Why() *cobra.Command {
	var request string
	cmd := p.Command(&cobra.Command{
		Use:   "why {NAME | --request ID}",
		Short: "Print the autoscaler's last decisions about a function, or why a request went to its instance",
		Long: `Print the autoscaler's last decisions about a function, with reasons; or with --request why
an activator chose the instance that answered a request, which its client names by the
header X-Request-Id of the answer. Each activator keeps its last 4,096 choices.`,
		Example: fmt.Sprintf("  %[1]s why tiny\n  %[1]s why --request req_MTQZ7KXN5Y2CJ4H6WB3RVDPFLA", p.Name),
		Args: func(cmd *cobra.Command, args []string) error {
			if request != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
	}, every, p.why(&request))
	cmd.Flags().StringVar(&request, "request", "", "the id of the request, from the header X-Request-Id of its answer")
	render.Flag(cmd)
	return cmd
}

func (p Program) why(request *string) func(*cobra.Command, *Server, []string) error {
	decisions := named(func(cmd *cobra.Command, s *Server, m *Match) error {
		decisions, err := listed[api.Decision](cmd.Context(), s, m, "/why")
		if err != nil {
			return err
		}
		slices.SortStableFunc(decisions, func(a, b api.Decision) int { return a.At.Compare(b.At) })
		return render.Print(cmd, decisions, render.Decisions)
	})
	return func(cmd *cobra.Command, s *Server, names []string) error {
		if *request == "" {
			return decisions(cmd, s, names)
		}
		picks, err := picksOf(cmd, s, *request)
		if err != nil {
			return err
		}
		return render.Print(cmd, picks, render.Picks)
	}
}

// picksOf returns at least one.
func picksOf(cmd *cobra.Command, s *Server, request string) (picks []api.Pick, err error) {
	err = s.Call(cmd.Context(), http.MethodGet, admin.PicksPath(request), nil, &picks)
	if err == nil && len(picks) == 0 {
		err = fmt.Errorf("no instance was chosen for a request %q, or it is not among the last: take the id from the header X-Request-Id of an answer; what was refused got no instance", request)
	}
	return picks, err
}

// Trace shows where the time of a wake went.
func (p Program) Trace() *cobra.Command {
	var all bool
	cmd := p.Command(&cobra.Command{
		Use:   "trace NAME",
		Short: "Show the last wake of a function step by step",
		Long: `Show the last wake of a function step by step: from the arrival of the request that
found no instance awake to the first byte of its answer, in the activator, the autoscaler, the
instance, and, where pods claim GPUs for others, in Kubernetes.

Steps lie within one another: a request is held while the autoscaler decides, while
another model goes to sleep for it, and while the instance wakes. The trace's ID is that
of the OpenTelemetry trace, which is exported where OTEL_EXPORTER_OTLP_ENDPOINT is set.`,
		Example: fmt.Sprintf("  %[1]s trace tiny\n  %[1]s trace tiny --all\n  %[1]s trace tiny -o json", p.Name),
		Args:    cobra.ExactArgs(1),
	}, every, named(func(cmd *cobra.Command, s *Server, m *Match) error {
		list, err := listed[api.WakeTrace](cmd.Context(), s, m, "/wakes")
		if err != nil {
			return err
		}
		slices.SortStableFunc(list, func(a, b api.WakeTrace) int { return a.Start.Compare(b.Start) })
		switch {
		case len(list) == 0:
			return fmt.Errorf("no wake of %s is on record: ask it something while it is asleep or unloaded (the last 32 are kept, as long as the autoscaler runs)", m.Name)
		case all:
			return render.Print(cmd, list, render.Waterfalls)
		}
		return render.Print(cmd, list[len(list)-1], render.Waterfall)
	}))
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all wakes on record, a line for each")
	render.Flag(cmd)
	return cmd
}

// Events prints CloudEvents.
func (p Program) Events() *cobra.Command {
	f := struct {
		Follow bool `flag:"follow,f" help:"go on with new events"`
		Tail   int  `flag:"tail" help:"<events> to begin with, those of others counted"`
	}{Tail: 100}
	cmd := p.Command(&cobra.Command{
		Use:   "events [NAME]",
		Short: "Print CloudEvents: demand, states and decisions",
		Long: `Print CloudEvents, of a function or of all: what is asked of functions, the states of
their instances, and what the autoscaler decides. In JSON they are structured CloudEvents, one a line.`,
		Example: fmt.Sprintf("  %[1]s events -f\n  %[1]s events tiny --tail 20 -o json", p.Name),
		Args:    cobra.MaximumNArgs(1),
	}, every, func(cmd *cobra.Command, s *Server, args []string) error {
		path, shown := fmt.Sprintf("%s?tail=%d&follow=%t", control.PathEvents, f.Tail, f.Follow), s.Shown
		if len(args) == 1 {
			m, err := s.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, f := range m.Functions {
				if f.Known == nil { // it may not exist
					if err := s.call(cmd.Context(), http.MethodGet, f, "", nil, nil); err != nil {
						return err
					}
				}
			}
			path, shown = path+"&function="+string(m.Subject), nil
		}
		resp, err := s.Open(cmd.Context(), http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return ended(render.Events(cmd, resp.Body, shown), f.Follow)
	})
	render.Flag(cmd, "text", "json")
	flagset.Add(cmd.Flags(), &f)
	return cmd
}

// Logs prints instances' output.
func (p Program) Logs() *cobra.Command {
	flags := struct {
		Follow bool `flag:"follow,f" help:"go on with new lines"`
		Tail   int  `flag:"tail" least:"-1" help:"<lines> to begin with; -1: all that are kept"`
	}{Tail: -1}
	cmd := p.Command(&cobra.Command{
		Use:     "logs NAME",
		Short:   "Print what a function's instances print",
		Example: "  " + p.Name + " logs tiny -f",
		Args:    cobra.ExactArgs(1),
	}, busiest, Each(func(cmd *cobra.Command, s *Server, _ *Match, f Function) error {
		resp, err := s.Open(cmd.Context(), http.MethodGet, admin.FunctionPath(f.Name, fmt.Sprintf("/logs?tail=%d&follow=%t", flags.Tail, flags.Follow)), nil)
		if err != nil {
			return f.failed(err)
		}
		defer resp.Body.Close()
		_, err = io.Copy(render.Harmless(cmd.OutOrStdout()), resp.Body)
		return ended(err, flags.Follow)
	}))
	flagset.Add(cmd.Flags(), &flags)
	return cmd
}

// ended turns the end of a followed stream into a success: the server stopped, the leader changed, or the user left.
func ended(err error, follow bool) error {
	if follow && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}
