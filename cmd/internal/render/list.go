package render

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// PrintList is [Print] for functions, with --output wide. On a terminal the table is cut to its width and coloured.
func PrintList(cmd *cobra.Command, list []admin.Function) error {
	if format, _ := cmd.Flags().GetString("output"); format == "wide" {
		return writeNoted(Harmless(cmd.OutOrStdout()), screen{colour: screenOf(cmd.OutOrStdout()).colour}, all, list)
	}
	return Print(cmd, list, func(w io.Writer, list []admin.Function) error { return writeNoted(w, screenOf(w), usual, list) })
}

func writeNoted(w io.Writer, s screen, columns []column, list []admin.Function) error {
	if err := writeList(w, s, columns, list); err != nil {
		return err
	}
	return Notes(w, list)
}

type column struct {
	head string
	cell func(admin.Function) string
	// least is the width to which the column may be cut; 0: it is never cut.
	least int
	// end: the end of a text matters more than its beginning.
	end bool
}

var (
	columnName    = column{head: "NAME", cell: func(f admin.Function) string { return f.Function.Name.Short() }, least: 12}
	columnState   = column{head: stateHead, cell: Summary}
	columnAwake   = column{head: "AWAKE", cell: Awake}
	columnMemory  = column{head: "MEMORY", cell: func(f admin.Function) string { return amount(used(f)) }}
	columnHeld    = column{head: "HELD", cell: func(f admin.Function) string { return fmt.Sprint(f.Activator.Waiting) }}
	columnRunning = column{head: "RUNNING", cell: func(f admin.Function) string { return fmt.Sprint(f.Activator.Running) }}
)

const stateHead = "STATE"

// usual are the columns that fit into a terminal of 80, all are those of --output wide.
var (
	usual = []column{columnName, columnState, columnAwake, columnMemory, columnHeld, columnRunning,
		{head: "LAST", cell: func(f admin.Function) string { return shortAgo(f.Activator.LastRequest) }},
		{head: "RUNS", cell: func(f admin.Function) string { return runs(f, shortSource(f.Function)) }, least: 8, end: true}}
	all = []column{columnName, columnState, columnAwake,
		{head: "ASLEEP", cell: func(f admin.Function) string { return fmt.Sprint(Count(f, api.Asleep)) }},
		columnMemory, columnHeld, columnRunning,
		{head: "LAST REQUEST", cell: func(f admin.Function) string { return Ago(f.Activator.LastRequest) }},
		{head: "RUNS", cell: func(f admin.Function) string { return runs(f, Source(f.Function)) }},
		{head: "SNAPSHOT", cell: func(f admin.Function) string { return cmp.Or(snapshotOf(f), "-") }},
		{head: "DECLARED IN", cell: func(f admin.Function) string { return f.Function.Origin }}}
)

const gap = "  "

// writeList cuts columns if the table is wider than the screen, and leaves the last ones out if that is not enough.
func writeList(w io.Writer, s screen, columns []column, list []admin.Function) error {
	rows := make([][]string, 1+len(list))
	for _, c := range columns {
		rows[0] = append(rows[0], c.head)
		for k, f := range list {
			rows[1+k] = append(rows[1+k], OneLine(c.cell(f)))
		}
	}
	if widths := widthsOf(rows); len(columns) > 2 && s.width > 0 {
		if s.fit(columns, widths, gap); total(widths, gap) > s.width {
			return writeList(w, s, columns[:len(columns)-1], list)
		}
	}
	return grid(w, s, columns, gap, rows)
}

func widthsOf(rows [][]string) (widths []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(cell))
		}
	}
	return widths
}

// grid writes rows without spaces at the ends of lines.
func grid(w io.Writer, s screen, columns []column, gap string, rows [][]string) error {
	widths := widthsOf(rows)
	s.fit(columns, widths, gap)
	var b bytes.Buffer
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			var c column
			if i < len(columns) {
				c = columns[i]
			}
			text := cut(cell, widths[i], c.end)
			pad := strings.Repeat(" ", widths[i]-uniseg.StringWidth(text))
			if c.head == stateHead {
				text = s.paint(stateColours[cell], text)
			}
			line += text + pad + gap
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// fit narrows columns that may be cut, the widest first.
func (s screen) fit(columns []column, widths []int, gap string) {
	if s.width == 0 {
		return
	}
	for total(widths, gap) > s.width {
		widest := -1
		for i, c := range columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func total(widths []int, gap string) int {
	sum := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func cut(text string, width int, end bool) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var clusters []string
	for g := uniseg.NewGraphemes(text); g.Next(); {
		clusters = append(clusters, g.Str())
	}
	if end {
		slices.Reverse(clusters)
	}
	kept, room := []string{}, width-1 // one for the mark
	for _, c := range clusters {
		if room -= uniseg.StringWidth(c); room < 0 {
			break
		}
		kept = append(kept, c)
	}
	if end {
		slices.Reverse(kept)
		return "…" + strings.Join(kept, "")
	}
	return strings.Join(kept, "") + "…"
}

// Awake formats how many instances are awake, of how many there may be, which is unknown of other clusters.
func Awake(f admin.Function) string {
	n := Count(f, api.Awake, api.Draining)
	if f.Far {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d/%d", n, f.Function.MaxScale)
}

// Count returns how many instances are in one of the states.
func Count(f admin.Function, states ...api.State) int {
	n := 0
	for _, i := range f.Instances {
		if slices.Contains(states, i.State) {
			n++
		}
	}
	return n
}

// used counts memory that several share on one node once.
func used(f admin.Function) (sum api.Bytes) {
	for k, i := range f.Instances {
		sum += i.Memory.Host - common(f.Instances[:k], i)
	}
	return sum
}

// common returns the part of a file in i's memory that one of others shares.
func common(others []api.InstanceStatus, i api.InstanceStatus) (most api.Bytes) {
	for _, o := range others {
		if o.Instance != i.Instance && o.Node == i.Node && o.Shared.File == i.Shared.File && i.Shared.File != "" {
			most = max(most, min(o.Shared.Bytes, i.Shared.Bytes, i.Memory.Host))
		}
	}
	return most
}

// shortSource is [Source] with a file's name instead of its path.
func shortSource(f api.Function) string {
	if rt := f.Runtime; strings.HasPrefix(rt.Model, "/") && rt.Endpoint == "" && rt.Kind != api.RuntimeCommand {
		f.Runtime.Model = path.Base(rt.Model)
	}
	return Source(f)
}

// shortAgo is [Ago] in one unit.
func shortAgo(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// Devices writes a table of the devices' accounts.
func Devices(w io.Writer, devices []admin.Device) error {
	table := Rows{{"DEVICE", "NAME", "CAPACITY", "AWAKE", "RISING", "RESERVED", "ASLEEP", "LEAVING", "FREE"}}
	for _, l := range devices {
		table.Add(l.ID, l.Name, l.Capacity, l.Awake, l.Rising, l.Reserved, l.Asleep, l.Leaving, l.Free)
	}
	return Table(w, table)
}
