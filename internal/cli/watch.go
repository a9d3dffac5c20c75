package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
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
			_, err = io.Copy(cmd.OutOrStdout(), resp.Body)
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
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, c.endpoint, path, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return ended(printEvents(cmd, resp.Body), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	cmd.Flags().IntVar(&tail, "tail", 100, "`events` to begin with")
	cmd.Flags().StringP("output", "o", "text", "`format`: text, or json (structured CloudEvents, one a line)")
	return cmd
}

func printEvents(cmd *cobra.Command, r io.Reader) error {
	format, _ := cmd.Flags().GetString("output")
	if format != "text" && format != "json" {
		return fmt.Errorf("--output %q: want text or json", format)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 2*cloudevent.MaxSize)
	for lines.Scan() {
		if format == "json" {
			fmt.Fprintln(cmd.OutOrStdout(), lines.Text())
			continue
		}
		e, err := cloudevent.Decode(lines.Bytes())
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(e.Type, "dev.rouse."), ".v1")
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %-22s %-16s %s\n", e.Time.Local().Format("15:04:05.000"), name, api.FunctionName(e.Subject).Name(), eventLine(e))
	}
	return lines.Err()
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
			return output(cmd, decisions, func(w io.Writer) error { return printDecisions(w, decisions) })
		},
	}
	outputFlag(cmd)
	return cmd
}

func printDecisions(w io.Writer, decisions []api.Decision) error {
	if len(decisions) == 0 {
		_, err := fmt.Fprintln(w, "Nothing was decided yet: no request came.")
		return err
	}
	for _, d := range decisions {
		fmt.Fprintf(w, "%s  %-7s %-14s %s\n", d.At.Local().Format(time.TimeOnly), d.Action, d.Instance, strings.ReplaceAll(d.Reason, "\n", "\n"+strings.Repeat(" ", 34)))
		if d.Error != "" {
			fmt.Fprintf(w, "%28s failed: %s\n", "", d.Error)
		}
	}
	return nil
}
