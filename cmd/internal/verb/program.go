package verb

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
)

// Linked is the version of a release, set by the linker.
var Linked string

// Version returns Linked, or what the build knows of its source.
func Version() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		built = info.Main.Version
	}
	return cmp.Or(Linked, built, "dev")
}

// Group is a group of commands in help.
type Group struct {
	Title    string
	Commands []*cobra.Command
}

// Fill adds the commands to a program's root, and version.
func Fill(root *cobra.Command, executable string, groups ...Group) {
	root.SilenceUsage, root.SilenceErrors, root.Version = true, true, Version()
	root.SetVersionTemplate(executable + " {{.Version}}\n")
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.Title, Title: g.Title})
		for _, c := range g.Commands {
			c.GroupID = g.Title
			root.AddCommand(c)
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), executable, Version())
			return err
		},
	})
	render.Explain(root)
}
