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

// Events prints the events from r, one structured CloudEvent a line, until r ends; keep may be nil.
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
			line, err := cloudevent.Encode(readableEvent(e))
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

// Picks prints why instances were chosen for a request.
func Picks(w io.Writer, picks []api.Pick) error {
	for _, p := range picks {
		instead := ""
		if p.Fallback != "" {
			instead = " in place of " + p.Fallback
		}
		_, err := fmt.Fprintf(w, "%s  %s went to %s%s%s: %s\n", p.At.Local().Format(time.TimeOnly), p.Request, p.Instance, instead, after(p.After), choice(p.Choice))
		if err != nil {
			return err
		}
	}
	return nil
}

func after(code string) string {
	switch code {
	case "":
		return ""
	case api.CodeMoved:
		return ", as the one before gave way"
	case api.CodeStreamCut:
		return ", as the one before had cut the stream"
	}
	return fmt.Sprintf(", as the one before did not answer it (%s)", code)
}

func choice(c api.Choice) string {
	var why string
	switch c.By {
	case "only":
		return fmt.Sprintf("the only instance, with %d of %d slots in use", c.Running, c.Slots)
	case "wake":
		return "it was woken for the request"
	case "prefix":
		why = fmt.Sprintf("it has seen about %d of the prompt's %d tokens", c.Known, c.Prompt)
	case "session":
		why = "the client's session stays with it"
	case "prompt":
		why = "no instance that is free enough has seen half of the prompt, and prompts with this beginning go to it"
	case "adapter":
		why = "it has the adapter, and the smallest load of those that have it"
	case "load":
		why = "it has the smallest load"
	default:
		why = c.By
	}
	return fmt.Sprintf("%s; %d of its %d slots were in use, %d of the least busy one's, %d instances had free slots", why, c.Running, c.Slots, c.Least, c.Free)
}

// Decisions prints decisions with their reasons.
func Decisions(w io.Writer, decisions []api.Decision) error {
	if len(decisions) == 0 {
		_, err := fmt.Fprintln(w, "Nothing was decided yet: no request came.")
		return err
	}
	action, width := 7, 14
	for _, d := range decisions {
		action, width = max(action, len(d.Action)), max(width, len(d.Instance))
	}
	for _, d := range decisions {
		reason := strings.ReplaceAll(d.Reason, "\n", "\n"+strings.Repeat(" ", 13+action+width))
		fmt.Fprintf(w, "%s  %-*s %-*s %s\n", d.At.Local().Format(time.TimeOnly), action, d.Action, width, d.Instance, reason)
		if d.Error != "" {
			fmt.Fprintf(w, "%28s failed: %s\n", "", d.Error)
		}
	}
	return nil
}
