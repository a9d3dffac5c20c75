package kn

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func listCommand() *cobra.Command {
	var every bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List functions with their revisions, state and load",
		Example: `  # the functions of this namespace
  kn rouse list
  # of all namespaces, for a program
  kn rouse list -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			f, err := c.survey(cmd.Context(), d, c.scope())
			if err != nil {
				return err
			}
			hidden := 0
			if !every {
				hidden = f.hide()
			}
			if f.services == nil {
				f.services = []*Service{}
			}
			return render.Print(cmd, f.services, func(w io.Writer, _ []*Service) error {
				if len(f.services) == 0 {
					_, err := fmt.Fprintf(w, "No functions in %s: %s.\n", c.where(), others(f, c.scope()))
					return err
				}
				if err := render.Table(w, rows(f.services, c.all, time.Now())); err != nil {
					return err
				}
				if err := render.Notes(w, served(f.services)); err != nil {
					return err
				}
				if hidden > 0 {
					_, err = fmt.Fprintf(w, "\nRevisions without traffic and pods are left out (%d); --every shows them.\n", hidden)
				}
				return err
			})
		},
	}
	namespaceFlags(cmd, true)
	render.Flag(cmd)
	cmd.Flags().BoolVar(&every, "every", false, "revisions without traffic and pods too")
	return cmd
}

func served(services []*Service) (all []admin.Function) {
	for _, s := range services {
		for _, r := range s.Revisions {
			if r.Function != nil {
				all = append(all, *r.Function)
			}
		}
	}
	return all
}

func (c *cluster) where() string {
	if c.all {
		return "the cluster"
	}
	return "the namespace " + c.namespace
}

// hide removes unused revisions, and returns how many. It keeps a new one that is not served, for its conditions, and
// one of each service.
func (f *fleet) hide() int {
	hidden := 0
	for _, s := range f.services {
		var kept []Revision
		var newest time.Time // with traffic
		for _, r := range s.Revisions {
			if r.Percent > 0 && r.Created.After(newest) {
				newest = r.Created
			}
		}
		for _, r := range s.Revisions {
			if r.used() || r.Function == nil && r.Created.After(newest) {
				kept = append(kept, r)
			}
		}
		if kept == nil {
			kept = s.Revisions[:1]
		}
		hidden += len(s.Revisions) - len(kept)
		s.Revisions = kept
	}
	return hidden
}

func rows(services []*Service, namespaces bool, now time.Time) (table render.Rows) {
	add := func(cells ...any) {
		if !namespaces {
			cells = cells[1:]
		}
		table.Add(cells...)
	}
	add("NAMESPACE", "NAME", "REVISION", "TRAFFIC", "STATE", "AWAKE", "ASLEEP", "WAITING", "RUNNING", "MEMORY", "MODELS", "AGE")
	for _, s := range services {
		for _, r := range s.Revisions {
			row := append([]any{s.Name.Namespace(), s.Name.Name(), r.Name.Name(), share(r)}, load(r.Function)...)
			add(append(row, models(r.Function), age(r.Created, now))...)
		}
	}
	return table
}

func share(r Revision) string {
	s := "-"
	if r.Percent > 0 {
		s = fmt.Sprintf("%d%%", r.Percent)
	}
	if len(r.Tags) > 0 {
		s += " #" + strings.Join(r.Tags, " #")
	}
	return s
}

// load returns state, awake, asleep, waiting, running and memory.
func load(f *admin.Function) []any {
	if f == nil {
		return []any{"not served", "-", "-", "-", "-", "-"}
	}
	memory := api.Memory{}
	for _, i := range f.Instances {
		memory.Host += i.Memory.Host
		memory.PerDevice += i.Memory.PerDevice * api.Bytes(max(1, i.Memory.Devices))
	}
	used := "-"
	switch {
	case memory.PerDevice > 0:
		used = memory.Host.String() + " + " + memory.PerDevice.String() + " GPU"
	case memory.Host > 0:
		used = memory.Host.String()
	}
	return []any{render.Summary(*f), render.Awake(*f), render.Count(*f, api.Asleep), f.Activator.Waiting, f.Activator.Running, used}
}

func models(f *admin.Function) string {
	if f == nil {
		return "-"
	}
	return render.Joined(f.Function.Names(), ",")
}

// age is in the largest unit that leaves at least 2, like kubectl.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

func describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show all that is known of a function, its conditions included",
		Long: `Show all that is known of a function. NAME is a Service's name, one of its
revisions, or the name of a model.`,
		Example: `  kn rouse describe tiny
  kn rouse describe tiny-00002 -n models -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			s, err := c.find(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			one := &fleet{services: []*Service{s}}
			one.hide()
			for i := range s.Revisions {
				r := &s.Revisions[i]
				scaler, err := get[knObject](cmd.Context(), c, podAutoscalers, r.Name.Namespace(), r.Name.Name())
				if err != nil {
					r.Scaling = []Condition{{Type: "Found", Status: "False", Reason: "Unread", Message: err.Error()}}
					continue
				}
				r.Scaling = scaler.Status.Conditions
			}
			return render.Print(cmd, s, describe)
		},
	}
	namespaceFlags(cmd, false)
	render.Flag(cmd)
	return cmd
}

func describe(w io.Writer, s *Service) error {
	head := render.Rows{{"Service:", s.Name}, {"URL:", cmp.Or(s.URL, "none yet")}}
	for _, c := range s.Conditions {
		if c.Type != "Ready" {
			continue
		}
		line := c.Status
		if c.Reason != "" {
			line += " (" + c.Reason + ")"
		}
		if c.Message != "" {
			line += ": " + render.OneLine(c.Message)
		}
		head.Add("Ready:", line)
	}
	if err := render.Table(w, head); err != nil {
		return err
	}
	for _, r := range s.Revisions {
		part := "no traffic"
		if r.Percent > 0 {
			part = fmt.Sprintf("%d%% of the traffic", r.Percent)
		}
		if len(r.Tags) > 0 {
			part += ", tagged " + strings.Join(r.Tags, ", ")
		}
		fmt.Fprintf(w, "\nRevision %s, %s, %s old\n\n", r.Name.Name(), part, age(r.Created, time.Now()))
		if r.Function == nil {
			fmt.Fprintln(w, "The autoscaler does not serve this revision; its conditions say why.")
		} else if err := render.Describe(w, *r.Function); err != nil {
			return err
		}
		fmt.Fprintln(w)
		conditions := render.Rows{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
		for k, list := range [][]Condition{r.Conditions, r.Scaling} {
			of := []string{"Revision ", "PodAutoscaler "}[k]
			for _, c := range list {
				conditions.Add(of+c.Type, c.Status, cmp.Or(c.Reason, "-"), cmp.Or(render.OneLine(c.Message), "-"))
			}
		}
		if err := render.Table(w, conditions); err != nil {
			return err
		}
	}
	return nil
}
