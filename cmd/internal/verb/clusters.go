package verb

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Clusters lists the clusters that a front door declares.
func (p Program) Clusters() *cobra.Command {
	cmd := p.Command(&cobra.Command{
		Use:   "clusters",
		Short: "List the clusters that join the front door",
		Long: `List the clusters that the front door declares: whether they have joined, how long a
message takes there and back, what they serve, how many of these models are awake, and
how many requests run there.`,
		Example: "  " + p.Name + " clusters\n  " + p.Name + " clusters -o json",
		Args:    cobra.NoArgs,
	}, "", func(cmd *cobra.Command, s *Server, _ []string) error {
		return Show(cmd, s, admin.PathClusters, printClusters)
	})
	render.Flag(cmd)
	return cmd
}

func printClusters(w io.Writer, list []admin.Cluster) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No clusters are declared here.")
		return err
	}
	rows := render.Rows{{"CLUSTER", "STATE", "AGENTS", "LATENCY", "MODELS", "AWAKE", "RUNNING", "SINCE"}}
	for _, c := range list {
		name := c.Name
		if c.Front {
			name += " (front door)"
		}
		rows.Add(name, c.State, len(c.Agents), latency(c), len(c.Functions), c.Awake, c.Running, render.Ago(c.Since))
	}
	if err := render.Table(w, rows); err != nil {
		return err
	}
	for _, c := range list {
		if c.Rejected != "" {
			if _, err := fmt.Fprintf(w, "%s was not let in (%s): %s\n", c.Name, render.Ago(c.RejectedAt), c.Rejected); err != nil {
				return err
			}
		}
		for _, r := range c.Refused {
			if _, err := fmt.Fprintf(w, "%s is refused %s\n", c.Name, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// latency returns the nearest agent's.
func latency(c admin.Cluster) string {
	var way time.Duration
	for _, a := range c.Agents {
		if a.Way > 0 && (way == 0 || a.Way < way) {
			way = a.Way
		}
	}
	switch {
	case way == 0:
		return "-"
	case way < time.Millisecond:
		return way.Round(10 * time.Microsecond).String()
	}
	return way.Round(100 * time.Microsecond).String()
}
