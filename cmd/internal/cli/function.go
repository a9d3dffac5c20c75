package cli

import (
	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/cli"
)

// functionCommand runs one instance. Local mode starts it, and so may people. The
// program cmd/rouse-function is the same; shells have a word of their own by that name.
func functionCommand() *cobra.Command {
	return cli.Command()
}
