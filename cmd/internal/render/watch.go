package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// EventFlag adds --output to a command that follows events.
func EventFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "text", "`format`: text, or json (structured CloudEvents, one a line)")
}

// Events prints the events that r has, one structured CloudEvent a line, until r
// ends; keep, if not nil, says which.
func Events(cmd *cobra.Command, r io.Reader, keep func(api.Event) bool) error {
	format, _ := cmd.Flags().GetString("output")
	if format != "text" && format != "json" {
		return fmt.Errorf("--output %q: want text or json", format)
	}
	w := Harmless(cmd.OutOrStdout())
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 2*cloudevent.MaxSize)
	for lines.Scan() {
		e, err := cloudevent.Decode(lines.Bytes())
		switch {
		case err != nil:
			return err
		case keep != nil && !keep(e):
			continue
		case format == "json":
			line, err := cloudevent.Encode(readable(e))
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\n", line)
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(e.Type, "dev.rouse."), ".v1")
		fmt.Fprintf(w, "%s  %-22s %-16s %s\n", e.Time.Local().Format("15:04:05.000"), name, api.FunctionName(e.Subject).Name(), EventLine(e))
	}
	return lines.Err()
}

// Decisions prints decisions with their reasons, one a line.
func Decisions(w io.Writer, decisions []api.Decision) error {
	if len(decisions) == 0 {
		_, err := fmt.Fprintln(w, "Nothing was decided yet: no request came.")
		return err
	}
	width := 14
	for _, d := range decisions {
		width = max(width, len(d.Instance))
	}
	for _, d := range decisions {
		reason := strings.ReplaceAll(d.Reason, "\n", "\n"+strings.Repeat(" ", 20+width))
		fmt.Fprintf(w, "%s  %-7s %-*s %s\n", d.At.Local().Format(time.TimeOnly), d.Action, width, d.Instance, reason)
		if d.Error != "" {
			fmt.Fprintf(w, "%28s failed: %s\n", "", d.Error)
		}
	}
	return nil
}
