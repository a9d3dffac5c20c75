// Package cli is the command line of rouse: one file per command or family of commands. Commands parse, call
// cmd/internal/local or its administrative API, and print: results on standard output, everything else on standard
// error.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Execute runs the command line and returns its error, which the caller prints.
func Execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// Command returns the tree of commands, for manuals.
func Command() *cobra.Command { return newRoot() }

// newRoot returns the tree of commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rouse",
		Short: "Serve language models from zero: asleep while nobody asks, awake in milliseconds",
		Long: `Rouse serves each language model as a function: an OpenAI-compatible endpoint
that costs nothing while nobody asks. A request for a sleeping model is held, the
model is woken, and the request is answered.

  rouse up                          serve the small model that ships with Rouse
  rouse up --model ./file.gguf      serve that one
  rouse up -f functions.yaml        serve the functions of a manifest
  rouse run pico "echo hello"       ask a function, or a model while nothing serves
  rouse pull hf.co/ORG/NAME         fetch a model`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetVersionTemplate("rouse {{.Version}}\n")
	root.PersistentFlags().String("server", "", "the server to talk to: an `address`, host:port, http://host:port or unix:/path (default: $ROUSE_SERVER, else the one that runs here)")
	root.PersistentFlags().String("token-file", "", "`file` with the administrative token, for a server at http://")
	root.AddGroup(
		&cobra.Group{ID: "serve", Title: "Serve:"},
		&cobra.Group{ID: "use", Title: "Use:"},
		&cobra.Group{ID: "watch", Title: "Watch:"})
	for group, commands := range map[string][]*cobra.Command{
		"serve": {upCommand(), applyCommand(), removeCommand(), shared.Wake(), shared.Sleep(), shared.Scale(), adaptersCommand(), keysCommand(), clustersCommand(), serviceCommand(), functionCommand(), engineCommand()},
		"use":   {runCommand(), pullCommand(), benchCommand(), modelsCommand(), simulateCommand()},
		"watch": {listCommand(), uiCommand(), pageCommand(), describeCommand(), shared.Logs(), shared.Events(), shared.Why(), traceCommand(), shared.Usage(), shared.Record(), replayCommand()},
		"":      {render.VersionCommand("rouse", version())},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(joinCommand())
	render.Explain(root)
	return root
}

// joinCommand explains how a cluster joins: there is no such command, because a joining server serves its own clients
// too.
func joinCommand() *cobra.Command {
	return &cobra.Command{
		Use: "join ADDRESS", Short: "Say how this machine joins a front door", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("a machine joins while it serves: rouse up --join %s --cluster-token-file FILE", cmp.Or(strings.Join(args, ","), "HOST:PORT"))
		},
	}
}

func traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show where the time of a wake went",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(shared.Trace("wake NAME"))
	return cmd
}

// Version is set by the linker for releases.
var Version = ""

// version returns the displayed version.
func version() string { return render.Version(Version) }
