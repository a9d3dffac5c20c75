// Package verb has the commands that rouse and kn rouse share.
package verb

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Changes is the annotation of commands that change something.
const Changes = "changes"

// Program is a command line that has these commands.
type Program struct {
	Name    string
	Connect func(cmd *cobra.Command) (*Server, error)
	// Flags adds the flags for the place; nil: the root has them.
	Flags func(cmd *cobra.Command, lists bool)
	// Complete may be nil.
	Complete cobra.CompletionFunc
	// Revisions: a name may stand for the revisions of a Knative Service.
	Revisions bool
}

// Server is one server and its lookup of names.
type Server struct {
	*Client
	Find func(ctx context.Context, name string) (*Match, error)
	// Explain adds details for the operator to the error of a function that could not start; may be nil.
	Explain func(ctx context.Context, name string, err error) error
	// Shown selects the events to show if no name is given; nil: all.
	Shown func(api.Event) bool
}

// Match is the result of looking a name up.
type Match struct {
	Name string
	// Functions are the served ones, the one with the most traffic first.
	Functions []Function
	// Unserved says why there are none.
	Unserved error
	// Subject is its events' subject.
	Subject api.FunctionName
}

// Function is a function that is served.
type Function struct {
	Name api.FunctionName
	// Revision is its own name if Match.Name stands for several.
	Revision string
	// Known is its state when it was found; nil: unknown.
	Known *admin.Function
}

func (f Function) suffix() string {
	if f.Revision == "" {
		return ""
	}
	return " (" + f.Revision + ")"
}

func (f Function) failed(err error) error {
	if err == nil || f.Revision == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

func (s *Server) call(ctx context.Context, method string, f Function, path string, in, out any) error {
	return f.failed(s.Call(ctx, method, admin.FunctionPath(f.Name, path), in, out))
}

// order prints the function's state after an order; for one that starts again, why.
func (s *Server) order(cmd *cobra.Command, m *Match, f Function, path string) error {
	var now admin.Function
	if err := s.call(cmd.Context(), http.MethodPost, f, path, nil, &now); err != nil {
		if s.Explain != nil {
			err = s.Explain(cmd.Context(), string(f.Name), err)
		}
		return err
	}
	why := ""
	if now.State() == api.Starting {
		var told []api.Decision
		if err := s.call(cmd.Context(), http.MethodGet, f, "/why", nil, &told); err == nil && len(told) > 0 {
			why = ": " + told[len(told)-1].Reason
		}
	}
	_, err := fmt.Fprintf(render.Harmless(cmd.OutOrStdout()), "%s is %s%s%s\n", m.Name, render.Word(now.State()), f.suffix(), why)
	return err
}

func listed[T any](ctx context.Context, s *Server, m *Match, path string) ([]T, error) {
	list := []T{}
	for _, f := range m.Functions {
		var some []T
		if err := s.call(ctx, http.MethodGet, f, path, nil, &some); err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

const (
	busiest = "the revision with the most traffic"
	every   = "every revision"
)

// Command has run called with the server. which says which of a Service's revisions it is about; empty: it takes no
// names of functions.
func (p Program) Command(cmd *cobra.Command, which string, run func(*cobra.Command, *Server, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := p.Connect(cmd)
		if err != nil {
			return err
		}
		return run(cmd, s, args)
	}
	if which == "" {
		return cmd
	}
	if p.Revisions {
		if cmd.Long == "" {
			cmd.Long = cmd.Short + "."
		}
		cmd.Long += "\n\nNAME is a Service, one of its revisions, or the name of a model. Of a Service\n" + which + " is meant."
	}
	cmd.ValidArgsFunction = p.Complete
	if p.Flags != nil {
		p.Flags(cmd, strings.Contains(cmd.Use, "[NAME]")) // without a name it lists
	}
	return cmd
}

// Show prints an answer of the server.
func Show[T any](cmd *cobra.Command, s *Server, path string, text func(io.Writer, T) error) error {
	var v T
	if err := s.Call(cmd.Context(), http.MethodGet, path, nil, &v); err != nil {
		return err
	}
	return render.Print(cmd, v, text)
}

// Each calls do for each name with its busiest function.
func Each(do func(*cobra.Command, *Server, *Match, Function) error) func(*cobra.Command, *Server, []string) error {
	return named(func(cmd *cobra.Command, s *Server, m *Match) error { return do(cmd, s, m, m.Functions[0]) })
}

func named(do func(*cobra.Command, *Server, *Match) error) func(*cobra.Command, *Server, []string) error {
	return func(cmd *cobra.Command, s *Server, names []string) error {
		for _, name := range names {
			m, err := s.Find(cmd.Context(), name)
			if err != nil {
				return err
			}
			if len(m.Functions) == 0 {
				return m.Unserved
			}
			if err := do(cmd, s, m); err != nil {
				return err
			}
		}
		return nil
	}
}
