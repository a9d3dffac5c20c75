package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// uiCommand prints the page's token for a user who may open the administrative socket.
func uiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ui",
		Short: "Print the address of the page of the server, with the right to administer it",
		Long: `Print the address of the page of the server that runs here: functions and their states, live, a
playground, wakes, memory, requests, usage. Behind its # the address has a token, which the browser keeps for
one tab; it opens the administration of this server to programs on this machine until the server ends.`,
		Example: "  rouse ui",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := dial(cmd)
			if err != nil {
				return err
			}
			info, err := c.info(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), info.Page)
			return err
		},
	}
}
