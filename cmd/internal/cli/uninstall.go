package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/functions/fetch"
)

func uninstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Say what of Rouse is on this machine, and how to remove it",
		Long: `Say what of Rouse is on this machine for this user, and how to remove it. Nothing is removed. Programs, man pages and
completions go as they came: apt remove rouse, dnf remove rouse, brew uninstall rouse, or sh install.sh --uninstall.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the program: %w", err)
			}
			m, err := managerOf(cmd, serviceManager{Kind: "auto", DryRun: true})
			if err != nil {
				return err
			}
			unit, _ := m.Path()
			cache, _ := os.UserCacheDir()
			rows := [][]string{{"WHAT", "WHERE", "REMOVE"}}
			for _, r := range [][]string{
				{"your service", unit, "rouse service uninstall"},
				{"the system's service", "/etc/systemd/system/" + unitName, "sudo rouse service uninstall --system"},
				{"functions and keys", configFolder(), "rm -r"},
				{"what was learned and typed", stateFolder(), "rm -r"},
				{"fetched models", fetch.Environment(os.Getenv).Dir, "rouse models prune --limit 0, then rm -r if nothing else is there"},
				{"packed weights", filepath.Join(cache, programName, "tiles"), "rm -r"},
				{"sockets and logs of servers", local.BaseDir(), "rm -r"},
				{"this program", program, "as it came"},
			} {
				if _, err := os.Stat(r[1]); err == nil {
					rows = append(rows, r)
				}
			}
			return render.Table(cmd.OutOrStdout(), rows)
		},
	}
}
