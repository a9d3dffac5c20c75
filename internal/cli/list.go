package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/local"
)

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List functions with their state",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var list []local.Function
			if err := c.call(cmd.Context(), http.MethodGet, local.PathFunctions, nil, &list); err != nil {
				return err
			}
			return output(cmd, list, func(w io.Writer) error {
				rows := [][]string{{"NAME", "STATE", "AWAKE", "ASLEEP", "MEMORY", "HELD", "RUNNING", "LAST REQUEST", "RUNS"}}
				for _, f := range list {
					rows = append(rows, row(f))
				}
				return table(w, rows)
			})
		},
	}
	outputFlag(cmd)
	return cmd
}

func row(f local.Function) []string {
	awake, asleep, memory := 0, 0, api.Bytes(0)
	for _, i := range f.Instances {
		memory += i.Memory.Host
		switch i.State {
		case api.Awake, api.Draining:
			awake++
		case api.Asleep:
			asleep++
		}
	}
	state := string(summary(f))
	if state == string(api.Gone) && f.Activator.Failed != "" {
		state = "failed" // requests are refused: rouse describe says why
	}
	used := "-"
	if memory > 0 {
		used = memory.String()
	}
	return []string{
		f.Function.Name.Name(), state, fmt.Sprintf("%d/%d", awake, f.Function.MaxScale), fmt.Sprint(asleep), used,
		fmt.Sprint(f.Activator.Waiting), fmt.Sprint(f.Activator.Running), ago(f.Activator.LastRequest), source(f.Function),
	}
}

// summary is one state for a whole function: the best that an instance has.
func summary(f local.Function) api.State {
	best, rank := api.Gone, 0
	ranks := map[api.State]int{api.Gone: 0, api.Unhealthy: 1, api.Asleep: 2, api.Starting: 3, api.Draining: 4, api.Awake: 5}
	for _, i := range f.Instances {
		if r := ranks[i.State]; r > rank {
			best, rank = i.State, r
		}
	}
	return best
}

// ago says how long ago t was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	if d < time.Second {
		return "now"
	}
	return d.Round(time.Second).String() + " ago"
}

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Show all that is known of a function",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			var f local.Function
			if err := c.call(cmd.Context(), http.MethodGet, functionPath(args[0], ""), nil, &f); err != nil {
				return err
			}
			return output(cmd, f, func(w io.Writer) error { return describe(w, f) })
		},
	}
	outputFlag(cmd)
	return cmd
}

func describe(w io.Writer, f local.Function) error {
	d := f.Function
	names := make([]string, 0, len(d.Aliases)+1)
	for _, n := range d.Names() {
		names = append(names, string(n))
	}
	rows := [][]string{
		{"Name:", string(d.Name)},
		{"Models:", strings.Join(names, ", ")},
		{"Runs:", source(d)},
		{"Declared in:", d.Origin},
		{"State:", string(summary(f))},
		{"Scale:", fmt.Sprintf("%d to %d instances, %d requests each", d.MinScale, d.MaxScale, d.Concurrency)},
		{"Idle:", fmt.Sprintf("asleep (level %d) after %s, gone after another %s", d.SleepLevel, never(d.SleepAfter), never(d.GoneAfter))},
		{"Holds:", fmt.Sprintf("%d requests, %s, for %s", d.Hold.Capacity, d.Hold.MaxBytes, d.Hold.Timeout)},
		{"Needs:", need(f.Need)},
		{"Requests:", fmt.Sprintf("%d held, %d running, last %s", f.Activator.Waiting, f.Activator.Running, ago(f.Activator.LastRequest))},
		{"Learned:", fmt.Sprintf("load %s, wake %s (level 1), %s (level 2), sleep %s", known(f.Learned.Load), known(f.Learned.Wake[1]), known(f.Learned.Wake[2]), known(f.Learned.Sleep))},
	}
	if f.Waits != "" {
		rows = append(rows, []string{"Waits:", f.Waits})
	}
	if f.LastError != "" {
		rows = append(rows, []string{"Last error:", oneLine(f.LastError)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if len(f.Instances) == 0 {
		_, err := fmt.Fprintln(w, "\nNo instances.")
		return err
	}
	fmt.Fprintln(w)
	instances := [][]string{{"INSTANCE", "STATE", "SINCE", "MEMORY", "RUNNING", "RESTARTS", "PID", "MESSAGE"}}
	for _, i := range f.Instances {
		state := string(i.State)
		if i.State == api.Asleep {
			state = fmt.Sprintf("asleep (level %d)", i.Level)
		} else if i.Stage != "" {
			state += " (" + i.Stage + ")"
		}
		instances = append(instances, []string{string(i.Instance), state, ago(i.Since), i.Memory.Host.String(), fmt.Sprint(i.Running), fmt.Sprint(i.Restarts), fmt.Sprint(i.PID), oneLine(i.Message)})
	}
	return table(w, instances)
}

func need(m api.Memory) string {
	s := m.Host.String() + " of host memory"
	if m.Devices > 0 {
		s += fmt.Sprintf(", %d GPUs", m.Devices)
		if m.PerDevice > 0 {
			s += " with " + m.PerDevice.String() + " each"
		}
	}
	return s
}

// oneLine keeps a message of several lines in its cell.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " | ") }

func never(d time.Duration) string {
	if d == 0 {
		return "no time (never)"
	}
	return d.String()
}

func known(d time.Duration) string {
	if d == 0 {
		return "unknown"
	}
	return rounded(d).String()
}
