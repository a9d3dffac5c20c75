// Package kn is the command line of kn-rouse, kn's plugin for Rouse: it implements `kn rouse`. kn runs a kn-rouse in
// its plugin folder or in PATH with the words after "rouse" and the user's environment.
//
// It combines two sources:
//
//  1. The Kubernetes API has the user's declarations: Services, revisions, their traffic and conditions.
//  2. The leading autoscaler has their state, in its administrative API (package api/admin), through the API server's
//     proxy. The credential is the cluster's token, in the Secret rouse-control: only users that may read that may use
//     it.
//
// check changes nothing; create makes a function's Service from the same facts as the kn command that it prints, and
// only if none of that name exists. Nothing here decides anything about existing functions.
package kn

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

// Execute runs the command line and returns its error, which the caller prints.
func Execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := Command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

var shared = verb.Program{Name: "kn rouse", Connect: server, Flags: namespaceFlags, Revisions: true}

func server(cmd *cobra.Command) (*verb.Server, error) {
	c, d, err := enter(cmd)
	if err != nil {
		return nil, err
	}
	find := func(ctx context.Context, name string) (*verb.Match, error) {
		s, err := c.find(ctx, d, name)
		if err != nil {
			return nil, err
		}
		m := &verb.Match{Name: s.Name.Name(), Subject: s.meant(name), Unserved: errUnserved(s)}
		for _, r := range s.Revisions {
			if r.Function != nil {
				m.Functions = append(m.Functions, verb.Function{Name: r.Name, Revision: r.Name.Name(), Known: r.Function})
			}
		}
		return m, nil
	}
	shown := func(e api.Event) bool { return c.all || api.FunctionName(e.Subject).Namespace() == c.namespace }
	return &verb.Server{Client: d, Find: find, Shown: shown}, nil
}

func enter(cmd *cobra.Command) (*cluster, *verb.Client, error) {
	c, err := connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	d, err := c.door(cmd.Context())
	return c, d, err
}

// Command returns the tree of commands.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use:   "rouse",
		Short: "Language models as functions: who is awake, who sleeps, and why",
		Long: `Rouse serves language models from zero on Knative: a Service of its class is a
function, asleep while nobody asks. These commands show and steer
the functions of a cluster, and check it.`,
		Example: `  kn rouse check
  kn rouse create tiny --model pico
  kn rouse list
  kn rouse why tiny`,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kn rouse"},
	}
	accessFlags(root)
	verb.Fill(root, "kn-rouse",
		verb.Group{Title: "Watch:", Commands: []*cobra.Command{listCommand(), describeCommand(), shared.Clusters(), shared.Why(), shared.Trace(), shared.Usage(), topCommand(), uiCommand(), shared.Events(), shared.Logs(), shared.Record()}},
		verb.Group{Title: "Steer:", Commands: []*cobra.Command{createCommand(), shared.Wake(), shared.Sleep(), shared.Scale(), keysCommand()}},
		verb.Group{Title: "The cluster:", Commands: []*cobra.Command{checkCommand()}})
	return root
}
