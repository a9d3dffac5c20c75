package cli

import (
	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/cli"
)

// functionCommand runs one instance. Local mode starts it, and users may. The program cmd/rouse-function is the same;
// it has another name because "function" is a word of the shell.
func functionCommand() *cobra.Command {
	return cli.Command()
}
