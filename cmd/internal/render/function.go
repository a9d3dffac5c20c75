package render

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

func runs(f admin.Function, source string) string {
	switch {
	case !f.Far:
		return source
	case len(f.Clusters) == 0:
		return source + ": in no cluster now"
	}
	return source + " in " + strings.Join(f.Clusters, ", ")
}

// Notes prints why functions have failed, and which of their names and fallbacks mean another function, or none.
func Notes(w io.Writer, list []admin.Function) error {
	var lines []string
	for _, f := range list {
		if why := f.Failed(); why != "" {
			lines = append(lines, fmt.Sprintf("%s failed: %s", f.Function.Name.Short(), OneLine(why)))
		}
		for _, l := range slices.Concat(f.Activator.LostNames, f.Activator.WrongFallbacks) {
			if !slices.Contains(lines, l) { // revisions of one service lose the same
				lines = append(lines, l)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Join(lines, "\n"))
	return err
}

// failed is the state of a function without instances that can't have one.
const failed = "failed"

// Summary returns the state, or "failed".
func Summary(f admin.Function) string {
	state := f.State()
	if state == api.Gone && f.Failed() != "" {
		return failed
	}
	return Word(state)
}

// Word returns the displayed word of a state.
func Word(s api.State) string {
	if s == api.Gone {
		return "unloaded"
	}
	return string(s)
}

// Ago formats how long ago t was.
func Ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	if d < time.Second {
		return "now"
	}
	return d.Round(time.Second).String() + " ago"
}

// Describe writes all details of a function.
func Describe(w io.Writer, f admin.Function) error {
	d := f.Function
	rows := Rows{
		{"Name:", d.Name},
		{"Models:", Joined(d.Names(), ", ")},
		{"Runs:", runs(f, Source(d))},
	}
	if !f.Far || d.Origin != "" {
		rows.Add("Declared in:", d.Origin)
	}
	rows.Add("State:", Summary(f))
	if !f.Far { // otherwise its clusters decide
		rows.Add("Scale:", fmt.Sprintf("%d to %d instances, %d requests each (%s)", d.MinScale, d.MaxScale, d.Concurrency, cmp.Or(d.ConcurrencyBy, "declared")))
		rows.Add("Idle:", idle(d))
		rows.Add("Holds:", fmt.Sprintf("%d requests, %s, for %s", d.Hold.Capacity, d.Hold.MaxBytes, d.Hold.Timeout))
		rows.Add("Needs:", need(f.Need))
	}
	rows.Add("Requests:", fmt.Sprintf("%d held, %d running, last %s", f.Activator.Waiting, f.Activator.Running, Ago(f.Activator.LastRequest)))
	if !f.Far {
		rows.Add("Learned:", fmt.Sprintf("load %s, wake %s (level 1), %s (level 2), sleep %s", known(f.Learned.Load), known(f.Learned.Wake[1]), known(f.Learned.Wake[2]), known(f.Learned.Sleep)))
	}
	if f.Scale != nil {
		rows.Add("Set:", fmt.Sprintf("%s, which is %d awake", f.Scale, f.Desired))
	}
	rows.say("Snapshot:", snapshotOf(f))
	rows.say("Waits:", f.Waits)
	rows.say("Foreseen:", f.Foreseen)
	mismatches := 0
	for _, i := range f.Instances {
		mismatches += i.CanaryMismatches
	}
	if mismatches > 0 {
		rows.Add("Canary:", fmt.Sprintf("%d times wrong after a wake; the model was loaded anew", mismatches))
	}
	for _, lost := range f.Activator.LostNames {
		rows.Add("Lost name:", lost)
	}
	for _, wrong := range f.Activator.WrongFallbacks {
		rows.Add("Fallback:", wrong)
	}
	rows.say("Never fits:", f.Impossible)
	rows.say("Refused:", OneLine(f.Activator.Failed))
	if f.LastError != f.Activator.Failed {
		rows.say("Last error:", OneLine(f.LastError))
	}
	if err := Table(w, rows); err != nil {
		return err
	}
	if len(f.Instances) == 0 {
		_, err := fmt.Fprintln(w, "\nNo instances.")
		return err
	}
	return instances(w, f.Instances)
}

// snapshotOf is empty if there is to be none.
func snapshotOf(f admin.Function) string {
	s := f.Learned.Snapshot
	switch {
	case s == nil:
		return ""
	case s.Missing != "":
		return "none: " + s.Missing
	case s.Restore > 0:
		return fmt.Sprintf("%s, made %s, restored in %s", s.Size, Ago(s.Made), Rounded(s.Restore))
	}
	return fmt.Sprintf("%s, made %s", s.Size, Ago(s.Made))
}

func instances(w io.Writer, list []api.InstanceStatus) error {
	fmt.Fprintln(w)
	rows := Rows{{"INSTANCE", "STATE", "SINCE", "MEMORY", "RUNNING", "RESTARTS", "PID", "MESSAGE"}}
	for _, i := range list {
		state := string(i.State)
		if i.State == api.Asleep {
			state = fmt.Sprintf("asleep (level %d)", i.Level)
		} else if i.Stage != "" {
			state += " (" + i.Stage + ")"
		}
		memory := amount(i.Memory.Host)
		if c := common(list, i); c > 0 {
			memory += fmt.Sprintf(" (%s of it in common)", c)
		}
		rows.Add(i.Instance, state, Ago(i.Since), memory, i.Running, i.Restarts, i.PID, OneLine(i.Message))
	}
	return Table(w, rows)
}

func need(m api.Memory) string {
	var needs []string
	if m.Host > 0 {
		needs = append(needs, m.Host.String()+" of host memory")
	}
	if m.Devices > 0 {
		s := fmt.Sprintf("%d GPUs", m.Devices)
		if m.Devices == 1 {
			s = "1 GPU"
		}
		switch {
		case m.PerDevice > 0:
			s += " with " + m.PerDevice.String() + " each"
		case m.Share > 0:
			s += fmt.Sprintf(", %.0f%% of it", m.Share*100)
		}
		needs = append(needs, s)
	}
	if len(needs) == 0 {
		return "unknown"
	}
	return strings.Join(needs, ", ")
}

func amount(b api.Bytes) string {
	if b == 0 {
		return "-"
	}
	return b.String()
}

// OneLine puts several lines into one.
func OneLine(s string) string { return strings.ReplaceAll(s, "\n", " | ") }

// Joined joins names with sep.
func Joined[T ~string](names []T, sep string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return strings.Join(all, sep)
}

func idle(f api.Function) string {
	sleeps, ends := "stays awake", "never unloaded"
	switch {
	case f.UnloadAfter > 0 && f.SleepAfter > 0:
		ends = fmt.Sprintf("unloaded after another %s", f.UnloadAfter)
	case f.UnloadAfter > 0:
		ends = fmt.Sprintf("unloaded after %s asleep", f.UnloadAfter)
	}
	if f.SleepAfter > 0 {
		sleeps = fmt.Sprintf("asleep (level %d) after %s", f.SleepLevel, f.SleepAfter)
	}
	return sleeps + ", " + ends
}

func known(d time.Duration) string {
	if d == 0 {
		return "unknown"
	}
	return Rounded(d).String()
}

// Source says what a function runs.
func Source(f api.Function) string {
	switch rt := f.Runtime; {
	case rt.Endpoint != "":
		return rt.Kind + " at " + string(rt.Endpoint)
	case (rt.Kind == api.RuntimeCommand || rt.Kind == api.RuntimeHTTP) && len(rt.Command) > 0:
		return strings.Join(rt.Command, " ")
	case rt.Kind == api.RuntimeHTTP:
		return "its image's HTTP server"
	case rt.Kind == "": // in a cluster the image decides
		return "its image's runtime, " + rt.Model
	case rt.Model == "": // a cluster does not tell
		return rt.Kind
	case strings.HasPrefix(path.Base(rt.Model), "sha256-") && len(f.Aliases) > 0: // a blob has no name of its own
		return rt.Kind + ", " + string(f.Aliases[0])
	default:
		return rt.Kind + ", " + rt.Model
	}
}

// Rounded rounds to about three digits.
func Rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
