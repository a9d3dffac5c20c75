package cli

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/activator/federation/door"
)

func clustersCommand() *cobra.Command {
	cmd := shared.Clusters()
	cmd.AddCommand(&cobra.Command{
		Use:   "token FILE",
		Short: "Make a token for a cluster, in a new file, and print its hash for the front door",
		Long: `Make a token for a cluster, in a new file, and print its hash for the front door.

The cluster shows the token (rouse up --join … --cluster-token-file FILE); the front
door knows the hash only (tokenHashes in the file of rouse up --clusters). To replace
a token, declare both hashes, change the file at the cluster, and take the old hash away.`,
		Example: "  rouse clusters token desk.token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			token := rand.Text() + rand.Text()
			if err := writeNew(args[0], []byte(token+"\n")); err != nil {
				return fmt.Errorf("make a token: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "tokenHashes: [%s]\n", door.HashToken(token))
			return nil
		},
	})
	return cmd
}
