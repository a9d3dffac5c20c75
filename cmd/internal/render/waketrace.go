package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/rouse-dev/rouse/api"
)

// Widths of a waterfall's columns, which have two spaces between them.
const (
	partWidth = 10
	nameWidth = 20
	barWidth  = 36
	timeWidth = 8
	pageWidth = 80
)

// Waterfall writes one record as bars in time.
func Waterfall(w io.Writer, o api.WakeTrace) error {
	s := screenOf(w)
	head := fmt.Sprintf("%s  %s in %s", o.Function.Name(), cmp.Or(string(o.Path), "woken"), Rounded(o.Total))
	if by := wokenBy(o); by != "" {
		head += ", " + by
	}
	lines := []string{head}
	when, trace := fmt.Sprintf("%s  %s", o.Instance, o.Start.Local().Format("2006-01-02 15:04:05.000")), "trace "+o.Trace
	if both := when + "  " + trace; uniseg.StringWidth(both) <= pageWidth {
		lines = append(lines, both)
	} else { // a pod has a long name
		lines = append(lines, when, trace)
	}
	lines = append(lines, "", strings.Repeat(" ", partWidth+nameWidth+4)+axis(o.Total))
	var notes []string
	for _, r := range tree(o) {
		name := strings.Repeat("  ", r.depth) + r.Name
		lines = append(lines, fmt.Sprintf("%s  %s  %s  %*s",
			pad(string(r.Part), partWidth), pad(name, nameWidth), s.paint(colours[r.Part], bar(r.Span, o.Total)), timeWidth, millis(r.Took, o.Total)))
		if note := strings.TrimSuffix(join(": ", string(r.Who), OneLine(r.Note)), ": "); note != "" {
			notes = append(notes, r.Name+": "+note)
		}
	}
	if len(notes) > 0 {
		lines = append(lines, "")
	}
	for _, n := range notes {
		lines = append(lines, wrap(n, pageWidth, "  ")...)
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

func join(with string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), with)
}

func wokenBy(o api.WakeTrace) string {
	switch {
	case o.By == api.PartActivator:
		return "woken by the activator under a grant"
	case o.By == "":
		return ""
	case o.Activator == "":
		return "by the autoscaler, without a request"
	}
	return "by the autoscaler for a request"
}

// Waterfalls writes a line for each record.
func Waterfalls(w io.Writer, list []api.WakeTrace) error {
	rows := Rows{{"WHEN", "PATH", "TOTAL", "HOLD", "FIRST TOKEN", "BY", "INSTANCE", "TRACE"}}
	for _, o := range list {
		took := func(name string) string {
			k := slices.IndexFunc(o.Spans, func(s api.Span) bool { return s.Name == name && s.Part == api.PartActivator })
			if k < 0 {
				return "-"
			}
			return millis(o.Spans[k].Took, time.Second)
		}
		rows.Add(o.Start.Local().Format("15:04:05.000"), o.Path, millis(o.Total, time.Second), took(api.SpanHold), took(api.SpanFirstToken),
			cmp.Or(string(o.By), "-"), o.Instance, o.Trace)
	}
	return Table(w, rows)
}

type row struct {
	api.Span
	depth int
}

const maxDepth = 3

// tree orders spans so that each follows its parent. One with a missing or circular parent is at the top.
func tree(o api.WakeTrace) []row {
	there := map[string]bool{}
	for _, s := range o.Spans {
		there[s.ID] = true
	}
	var rows []row
	done := make([]bool, len(o.Spans))
	var add func(k, depth int)
	add = func(k, depth int) {
		if done[k] {
			return
		}
		done[k] = true
		rows = append(rows, row{o.Spans[k], min(depth, maxDepth)})
		for child, s := range o.Spans {
			if s.Parent == o.Spans[k].ID {
				add(child, depth+1)
			}
		}
	}
	for k, s := range o.Spans {
		if !there[s.Parent] {
			add(k, 0)
		}
	}
	for k := range o.Spans {
		add(k, 0) // part of a cycle
	}
	return rows
}

func axis(total time.Duration) string {
	middle, end := Rounded(total/2).String(), Rounded(total).String()
	line := "0" + strings.Repeat(" ", max(0, barWidth/2-1-uniseg.StringWidth(middle)/2)) + middle
	return line + strings.Repeat(" ", max(1, barWidth-uniseg.StringWidth(line)-uniseg.StringWidth(end))) + end
}

var eighths = []rune("▏▎▍▌▋▊▉█")

// bar draws a span in eighths of a column; even the shortest is visible.
func bar(s api.Span, total time.Duration) string {
	if total <= 0 {
		return pad(string(eighths[0]), barWidth)
	}
	const all = barWidth * 8
	from := int(int64(s.After) * barWidth / int64(total))
	from = min(max(0, from), barWidth-1)
	to := int(float64(s.End()) / float64(total) * all)
	to = min(max(to, from*8+1), all)
	n := to - from*8
	b := strings.Repeat(" ", from) + strings.Repeat("█", n/8)
	if n%8 > 0 {
		b += string(eighths[n%8-1])
	}
	return pad(b, barWidth)
}

// millis: all values of a column have the same unit and number of digits.
func millis(d, total time.Duration) string {
	digits := 2
	switch {
	case total >= 10*time.Second:
		digits = 0
	case total >= time.Second:
		digits = 1
	}
	return fmt.Sprintf("%.*fms", digits, float64(d)/float64(time.Millisecond))
}

func pad(s string, to int) string {
	s = cut(s, to, false)
	return s + strings.Repeat(" ", to-uniseg.StringWidth(s))
}

// wrap indents all lines but the first.
func wrap(s string, at int, indent string) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case uniseg.StringWidth(line)+1+uniseg.StringWidth(word) > at:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// colours are ECMA-48's.
var colours = map[api.Part]string{api.PartActivator: "36", api.PartAutoscaler: "33", api.PartInstance: "32", api.PartKubernetes: "34"}
