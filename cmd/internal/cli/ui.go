package cli

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
)

// uiCommand prints the page's address, with its token. A user that may open the administrative socket may have the
// token.
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
			var info local.Info
			if err := c.Call(cmd.Context(), http.MethodGet, admin.PathInfo, nil, &info); err != nil {
				return err
			}
			if info.Page == "" {
				return errors.New("the server has no page: it is of an older version")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), info.Page)
			return err
		},
	}
}
