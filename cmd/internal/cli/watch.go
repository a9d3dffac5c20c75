package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/admin"
)

func logsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:               "logs NAME",
		Short:             "Print what a function's instances print",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, c.endpoint, functionPath(args[0], fmt.Sprintf("/logs?tail=%d&follow=%t", tail, follow)), nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(render.Harmless(cmd.OutOrStdout()), resp.Body)
			return ended(err, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines")
	cmd.Flags().IntVar(&tail, "tail", -1, "`lines` to begin with; -1: all that are kept")
	return cmd
}

// ended turns the end of a followed stream into a success: the server stopped, or the person left.
func ended(err error, follow bool) error {
	if follow && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

func eventsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:               "events [NAME]",
		Short:             "Print CloudEvents: demand, states and decisions",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			path := fmt.Sprintf("%s?tail=%d&follow=%t", control.PathEvents, tail, follow)
			if len(args) == 1 {
				name := api.FunctionName(args[0])
				path += "&function=" + string(api.NewFunctionName(name.Namespace(), name.Name()))
				var f admin.Function
				if err := c.call(cmd.Context(), http.MethodGet, functionPath(args[0], ""), nil, &f); err != nil {
					return err
				}
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, c.endpoint, path, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return ended(render.Events(cmd, resp.Body, nil), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	cmd.Flags().IntVar(&tail, "tail", 100, "`events` to begin with")
	render.EventFlag(cmd)
	return cmd
}

func whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "why NAME",
		Short:             "Print the autoscaler's last decisions about a function, with reasons",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var decisions []api.Decision
			if err := c.call(cmd.Context(), http.MethodGet, functionPath(args[0], "/why"), nil, &decisions); err != nil {
				return err
			}
			return render.Print(cmd, decisions, func(w io.Writer) error { return render.Decisions(w, decisions) })
		},
	}
	render.Flag(cmd)
	return cmd
}
