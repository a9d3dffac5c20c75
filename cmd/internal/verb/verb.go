// Package verb holds the commands that rouse and kn rouse share. Each is written once; what differs is how a
// server is reached, and what a name means: on one machine a function, in a cluster a Service with its revisions.
package verb

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/adminclient"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Changes marks commands that change something, among their annotations.
const Changes = "changes"

// Program is a command line that has these commands.
type Program struct {
	// Name is what people type, "rouse".
	Name string
	// Connect finds the server that a command's flags name.
	Connect func(cmd *cobra.Command) (*Server, error)
	// Flags adds those that say where, to a command that lists or one that does not; nil: the root has them.
	Flags func(cmd *cobra.Command, lists bool)
	// Complete completes names; nil: nothing does.
	Complete cobra.CompletionFunc
	// Revisions says that a name may stand for several functions: the revisions of a Knative Service.
	Revisions bool
}

// Server is one server and the names that people have for what it serves.
type Server struct {
	*adminclient.Client
	// Find returns what a name means.
	Find func(ctx context.Context, name string) (*Match, error)
	// Explain adds to the error of a function that could not be brought up what only its operator may know; nil: nothing.
	Explain func(ctx context.Context, name string, err error) error
	// Shown says which events are shown where no name is given; nil: all.
	Shown func(api.Event) bool
}

// Match is what a name means.
type Match struct {
	// Name is what it is called.
	Name string
	// Functions are those that are served, the one with the most traffic first.
	Functions []Function
	// Unserved says why there are none.
	Unserved error
	// Subject is what its events are about.
	Subject api.FunctionName
}

// Function is one that is served.
type Function struct {
	Name api.FunctionName
	// Revision is its own name where Match.Name stands for several; empty: it does not.
	Revision string
	// Known is how it was when it was found; nil: nobody asked.
	Known *admin.Function
}

// suffix tells one revision from the others.
func (f Function) suffix() string {
	if f.Revision == "" {
		return ""
	}
	return " (" + f.Revision + ")"
}

// failed says of which revision an error is.
func (f Function) failed(err error) error {
	if err == nil || f.Revision == "" {
		return err
	}
	return fmt.Errorf("%s: %w", f.Name, err)
}

// call sends a request about a function.
func (s *Server) call(ctx context.Context, method string, f Function, path string, in, out any) error {
	return f.failed(s.Call(ctx, method, admin.FunctionPath(f.Name, path), in, out))
}

// order has something done to a function, and says what it then is; of one that starts again, why.
func (s *Server) order(cmd *cobra.Command, m *Match, f Function, path string) error {
	var now admin.Function
	if err := s.call(cmd.Context(), http.MethodPost, f, path, nil, &now); err != nil {
		if s.Explain != nil {
			err = s.Explain(cmd.Context(), string(f.Name), err)
		}
		return err
	}
	why := ""
	if render.State(now) == api.Starting {
		var told []api.Decision
		if err := s.call(cmd.Context(), http.MethodGet, f, "/why", nil, &told); err == nil && len(told) > 0 {
			why = ": " + told[len(told)-1].Reason
		}
	}
	_, err := fmt.Fprintf(render.Harmless(cmd.OutOrStdout()), "%s is %s%s%s\n", m.Name, render.Word(render.State(now)), f.suffix(), why)
	return err
}

// listed reads lists about each function of a name, and joins them.
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

// Which of a Service's revisions a command is about.
const (
	busiest = "the revision with the most traffic"
	every   = "every revision"
)

// command completes a command that takes names of functions, and says which revisions it is about.
func (p Program) command(cmd *cobra.Command, which string, run func(*cobra.Command, *Server, []string) error) *cobra.Command {
	if p.Revisions {
		if cmd.Long == "" {
			cmd.Long = cmd.Short + "."
		}
		cmd.Long += "\n\nNAME is a Service, one of its revisions, or the name of a model. Of a Service\n" + which + " is meant."
	}
	cmd.ValidArgsFunction = p.Complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := p.Connect(cmd)
		if err != nil {
			return err
		}
		return run(cmd, s, args)
	}
	if p.Flags != nil {
		p.Flags(cmd, strings.Contains(cmd.Use, "[NAME]")) // without a name it lists
	}
	return cmd
}

// each does one thing to each function that is named, of those of a name to the one with the most traffic.
func each(do func(*cobra.Command, *Server, *Match, Function) error) func(*cobra.Command, *Server, []string) error {
	return named(func(cmd *cobra.Command, s *Server, m *Match) error { return do(cmd, s, m, m.Functions[0]) })
}

// named does one thing to each name; each means at least one function.
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
