package verb

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// Wake wakes functions.
func (p Program) Wake() *cobra.Command {
	return p.Command(&cobra.Command{
		Use:         "wake NAME …",
		Annotations: map[string]string{Changes: ""},
		Short:       "Wake functions and wait until they are awake",
		Example:     "  " + p.Name + " wake tiny",
		Args:        cobra.MinimumNArgs(1),
	}, busiest, Each(func(cmd *cobra.Command, s *Server, m *Match, f Function) error { return s.order(cmd, m, f, "/wake") }))
}

// Sleep puts functions to sleep, and stops them.
func (p Program) Sleep() *cobra.Command {
	var level int
	var unload bool
	cmd := p.Command(&cobra.Command{
		Use: "sleep NAME …", SuggestFor: []string{"stop"},
		Annotations: map[string]string{Changes: ""},
		Short:       "Put functions to sleep and wait until they sleep",
		Long:        "Put functions to sleep and wait until they sleep. It is refused while requests wait.",
		Example: "  " + p.Name + " sleep tiny\n  # drop the weights too\n  " + p.Name + " sleep tiny --level 2\n" +
			"  # nothing of it stays\n  " + p.Name + " sleep tiny --unload",
		Args: cobra.MinimumNArgs(1),
	}, every, named(func(cmd *cobra.Command, s *Server, m *Match) error {
		path := "/sleep"
		switch {
		case unload:
			path = "/stop"
		case level < 0 || level > 3:
			return fmt.Errorf("--level %d: want 1 (the weights stay in host memory), 2 (they are dropped) or 3 (the process is off its GPUs, too)", level)
		case level != 0:
			path += fmt.Sprintf("?level=%d", level)
		}
		ordered := false
		for _, f := range m.Functions {
			if f.Known != nil && len(f.Known.Instances) == 0 {
				continue
			}
			ordered = true
			if err := s.order(cmd, m, f, path); err != nil {
				return err
			}
		}
		if !ordered {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is unloaded: it has no pods\n", m.Name)
		}
		return nil
	}))
	cmd.Flags().IntVar(&level, "level", 0, "how deep: 1 keeps weights in host memory, 2 drops them, 3 also takes the process off its GPUs (default: the function's own)")
	cmd.Flags().BoolVar(&unload, "unload", false, "stop the instances altogether; the next request starts new ones")
	cmd.MarkFlagsMutuallyExclusive("level", "unload")
	return cmd
}

// Scale keeps a number of instances awake.
func (p Program) Scale() *cobra.Command {
	var lifetime time.Duration
	replicas := 0
	cmd := p.Command(&cobra.Command{
		Use:         "scale NAME REPLICAS --for DURATION",
		Annotations: map[string]string{Changes: ""},
		Short:       "Keep a number of instances of a function awake for a time, whatever the demand",
		Long: `Keep a number of instances of a function awake for a time, whatever the demand: missing
ones are woken or started, further ones go to sleep, within min-scale and max-scale. With 0,
requests are held and no instance is woken for them. Afterwards demand decides again.`,
		Example: "  " + p.Name + " scale tiny 2 --for 10m",
		Args:    cobra.ExactArgs(2),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			replicas, err = parseReplicas(args[1])
			return err
		},
	}, busiest, func(cmd *cobra.Command, s *Server, args []string) error {
		return Each(func(cmd *cobra.Command, s *Server, m *Match, f Function) error {
			var now admin.Function
			want := admin.Scale{Replicas: replicas, For: lifetime.String(), By: p.Name + " scale"}
			if err := s.call(cmd.Context(), http.MethodPost, f, "/scale", want, &now); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", scaled(m.Name, now), f.suffix())
			return err
		})(cmd, s, args[:1])
	})
	cmd.SetFlagErrorFunc(replicasBelow0)
	flagset.DurationVarP(cmd.Flags(), &lifetime, "for", "", 0, "how long; after that demand decides again")
	_ = cmd.MarkFlagRequired("for") // fails only for a flag that does not exist
	return cmd
}

func scaled(name string, f admin.Function) string {
	until := ""
	if f.Scale != nil {
		until = " until " + f.Scale.Until.Local().Format("15:04:05")
		if f.Scale.Replicas != f.Desired {
			until += fmt.Sprintf(" (not %d: min-scale is %d, max-scale %d)", f.Scale.Replicas, f.Function.MinScale, f.Function.MaxScale)
		}
	}
	return fmt.Sprintf("%s: %d wanted%s, %d awake", name, f.Desired, until, render.Count(f, api.Awake))
}

func parseReplicas(arg string) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("replicas %.20q: want a number of at least 0", arg)
	}
	return n, nil
}

// replicasBelow0: the parser takes a negative number for a flag.
func replicasBelow0(cmd *cobra.Command, err error) error {
	if at := strings.LastIndex(err.Error(), " in -"); at >= 0 && strings.HasPrefix(err.Error(), "unknown shorthand flag") {
		if _, bad := parseReplicas(err.Error()[at+len(" in "):]); bad != nil && strings.Trim(err.Error()[at+len(" in -"):], "0123456789") == "" {
			return bad
		}
	}
	return render.MeantFlag(cmd, err)
}
