// Package cli is the command line of rouse. Results go to standard output, everything else to standard error.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/functions/cli"
)

// Execute runs the command line and returns its error, which the caller prints.
func Execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if slices.Equal(args, local.ParentArgs) { // a quarter of the memory less
		return cli.Keep(ctx, stderr)
	}
	root := Command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// Command returns the tree of commands.
func Command() *cobra.Command {
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
	}
	root.PersistentFlags().String("server", "", "the server to talk to: an `address`, host:port, http://host:port or unix:/path (default: $ROUSE_SERVER, else the one that runs here)")
	root.PersistentFlags().String("token-file", "", "`file` with the administrative token, for a server at http://")
	trace, former := shared.Trace(), shared.Trace()
	former.Use, former.Hidden = "wake NAME", true // its former name
	trace.AddCommand(former)
	verb.Fill(root, "rouse",
		verb.Group{Title: "Serve:", Commands: []*cobra.Command{upCommand(), applyCommand(), removeCommand(), shared.Wake(), shared.Sleep(), shared.Scale(), adaptersCommand(), keysCommand(), clustersCommand(), serviceCommand(), importCommand(), uninstallCommand(), cli.Command(), engineCommand()}},
		verb.Group{Title: "Use:", Commands: []*cobra.Command{runCommand(), pullCommand(), benchCommand(), modelsCommand(), simulateCommand()}},
		verb.Group{Title: "Watch:", Commands: []*cobra.Command{listCommand(), uiCommand(), pageCommand(), describeCommand(), shared.Logs(), shared.Events(), shared.Why(), trace, shared.Usage(), shared.Record(), replayCommand()}})
	root.AddCommand(joinCommand())
	return root
}

// joinCommand explains why there is none: a joining server serves its own clients too.
func joinCommand() *cobra.Command {
	return &cobra.Command{
		Use: "join ADDRESS", Short: "Say how this machine joins a front door", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("a machine joins while it serves: rouse up --join %s --cluster-token-file FILE", cmp.Or(strings.Join(args, ","), "HOST:PORT"))
		},
	}
}
