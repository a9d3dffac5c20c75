package render

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// VersionCommand prints the version of a program.
func VersionCommand(program, version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), program, version)
			return err
		},
	}
}

// Version returns the release set by the linker, or else what the build knows of its source.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}
