package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/simulate"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"

	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

type replayFlags struct {
	at       string
	policies []string
}

func replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [FILE] [why NAME | list | devices]",
		Short: "Replay a record of the autoscaler: decide again, explain a time, or try another policy",
		Long: `Replay a record of all that an autoscaler has taken in and decided. FILE is what rouse
record or kn rouse record wrote, or a folder of segments; without it, what servers of this
user have recorded ($XDG_STATE_HOME/rouse/record). No server is asked and nothing is started.

Alone, it decides everything again, and compares each decision with the one that was recorded,
to the byte. It fails where one is another.

With why NAME it answers as rouse why would have answered at the time of --at, or at the end
of the record; with list it says in which states functions were, with devices who had the
memory of each device.

With --policy it says what a policy of rouse simulate would have cost with the requests of this
record, and what it has to assume for that.`,
		Example: `  rouse replay
  rouse replay today.flight --at 03:12 why chat
  rouse replay today.flight --at 2026-11-24T03:12:30 list
  rouse replay today.flight --policy rouse --policy keepalive`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().StringVar(&f.at, "at", "", "a `time` in the record, such as 03:12 or 2026-11-24T03:12:30 (default: its end)")
	cmd.Flags().StringArrayVar(&f.policies, "policy", nil, strings.Join(simulate.All, ", ")+": what it would have cost (repeatable)")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(simulate.All, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
	render.Flag(cmd)
	return cmd
}

func question(args []string) (file string, words []string, err error) {
	asks := map[string]int{"why": 2, "list": 1, "devices": 1}
	if len(args) > 0 && asks[args[0]] == 0 {
		file, args = args[0], args[1:]
	}
	if len(args) == 0 {
		return file, nil, nil
	}
	if want := asks[args[0]]; want != len(args) {
		return "", nil, fmt.Errorf("%q: want why NAME, list or devices behind the file", strings.Join(args, " "))
	}
	return file, args, nil
}

func (f *replayFlags) run(cmd *cobra.Command, args []string) error {
	file, words, err := question(args)
	if err != nil {
		return err
	}
	switch {
	case f.at != "" && len(words) == 0:
		return errors.New("--at: say what is asked: why NAME, list or devices")
	case len(f.policies) > 0 && len(words) > 0:
		return fmt.Errorf("--policy: it compares whole records, and answers no %s", words[0])
	}
	if err := knownPolicies(f.policies); err != nil {
		return err
	}
	if file == "" {
		if file = filepath.Join(stateFolder(), local.RecordDir); stateFolder() == "" {
			return errors.New("this user has no home, where records are: name a file")
		}
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("nothing was recorded in %s: rouse up records, or name a file", shortPath(file))
		}
	}
	r, err := openRecording(file, verb.Version())
	if err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	switch {
	case len(words) > 0:
		return f.answer(cmd, r, words)
	case len(f.policies) > 0:
		return f.compare(cmd, r)
	}
	return check(cmd, r)
}

func (f *replayFlags) answer(cmd *cobra.Command, r *recording, words []string) error {
	var at time.Time
	var err error
	if f.at != "" {
		if at, err = r.Time(f.at); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	then, err := r.At(cmd.Context(), at, name)
	if err != nil {
		return err
	}
	if then.Note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", then.Note)
	}
	switch words[0] {
	case "why":
		return render.Print(cmd, then.Why(then.Function), render.Decisions)
	case "devices":
		return render.Print(cmd, then.Ledger(), render.Devices)
	}
	return render.Print(cmd, then.Functions(), listThen)
}

// listThen leaves out the columns that depend on the present time.
func listThen(w io.Writer, list []admin.Function) error {
	rows := render.Rows{{"NAME", "STATE", "AWAKE", "ASLEEP", "WAITING", "RUNNING"}}
	for _, v := range list {
		rows.Add(v.Function.Name.Name(), render.Word(v.State()), render.Count(v, api.Awake), render.Count(v, api.Asleep), v.Waiting, v.Running)
	}
	return render.Table(w, rows)
}

func check(cmd *cobra.Command, r *recording) error {
	all, err := r.Check(cmd.Context())
	if err != nil {
		return err
	}
	other, decisions, rounds := 0, 0, 0
	for _, c := range all {
		if rounds, decisions = rounds+c.Rounds, decisions+c.Decisions; c.First != nil {
			other++
		}
		if c.Gap != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", c.Gap)
		}
	}
	err = render.Print(cmd, all, func(w io.Writer, all []checkedSegment) error {
		rows := render.Rows{{"FROM", "TO", "FUNCTIONS", "ROUNDS", "DECISIONS", "ALIKE"}}
		for _, c := range all {
			alike := "all"
			if c.First != nil {
				alike = fmt.Sprintf("%d, then not", c.Alike)
			}
			rows.Add(date(c.From), date(c.To), c.Functions, c.Rounds, c.Decisions, alike)
		}
		if err := render.Table(w, rows); err != nil {
			return err
		}
		if other == 0 {
			fmt.Fprintf(w, "\n%s in %s: each is decided again as it was, to the byte.\n", count(decisions, "decision"), count(rounds, "round"))
		}
		for _, c := range all {
			if c.First != nil {
				differs(w, c.First)
			}
		}
		return nil
	})
	if err == nil && other > 0 {
		err = fmt.Errorf("%s decided otherwise than it was recorded", count(other, "segment"))
	}
	return err
}

func differs(w io.Writer, d *difference) {
	fmt.Fprintf(w, "\nAt %s:\n", d.At.Local().Format("2006-01-02 15:04:05.000000"))
	if d.Error != "" {
		fmt.Fprintf(w, "  it can't be replayed any further: %s\n", d.Error)
		return
	}
	for _, side := range []struct {
		word string
		list []api.Decision
	}{{"was", d.Recorded}, {"now", d.Decided}} {
		if len(side.list) == 0 {
			fmt.Fprintf(w, "  %s  nothing\n", side.word)
		}
		for _, one := range side.list {
			fmt.Fprintf(w, "  %s  %-7s %s %s: %s\n", side.word, one.Action, one.Function, one.Instance, render.OneLine(one.Reason))
		}
	}
}

func (f *replayFlags) compare(cmd *cobra.Command, r *recording) error {
	list, err := r.WhatIf(cmd.Context(), f.policies)
	if err != nil {
		return err
	}
	return render.Print(cmd, list, func(out io.Writer, list []whatIf) error {
		for k, w := range list {
			if k > 0 {
				fmt.Fprintln(out)
			}
			if err := compared(out, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func compared(out io.Writer, w whatIf) error {
	use, hours := "use no GPU", w.Then.HostHours
	if w.GPUs {
		use, hours = "use GPUs", w.Then.GPUHours
	}
	if w.Models == 1 {
		use = strings.Replace(use, "use", "uses", 1)
	}
	fmt.Fprintf(out, "%s for %s that %s, from %s to %s\n\n", count(w.Requests, "request"), count(w.Models, "model"), use, date(w.From), date(w.To))
	rows := render.Rows{{"POLICY", "GPU-HOURS", "COLD HITS", "TTFT P50", "TTFT P95", "REFUSED", "STARTS", "WAKES"}}
	rows.Add("(as it was)", fmt.Sprintf("%.2f", hours), w.Then.ColdHits, "-", "-", "-", w.Then.Starts, w.Then.Wakes)
	for _, p := range w.Policies {
		rows.Add(p.Name, fmt.Sprintf("%.2f", p.GPUHours), p.ColdHits, fmt.Sprintf("%.0f ms", p.P50), fmt.Sprintf("%.0f ms", p.P95),
			p.Refused, p.Starts, p.Wakes)
	}
	if err := render.Table(out, rows); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe policies are simulated. They assume, beside what is recorded:")
	for _, a := range w.Assumes {
		fmt.Fprintf(out, "  - %s\n", a)
	}
	return nil
}
