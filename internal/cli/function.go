package cli

import (
	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/functions/cli"
)

// functionCommand runs one instance. Local mode starts it; people have no need to.
func functionCommand() *cobra.Command {
	cmd := cli.Command()
	cmd.Hidden = true
	return cmd
}
