// Command manual writes a man page for each command of rouse and kn rouse:
//
//	go run ./cmd/internal/manual --man FOLDER --version v1.2.0
//
// The output is reproducible: the date of the pages is SOURCE_DATE_EPOCH.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/cmd/internal/cli"
	"github.com/rouse-dev/rouse/cmd/internal/kn"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("manual", pflag.ContinueOnError)
	man := flags.String("man", "", "the `folder` to write man pages into")
	version := flags.String("version", "dev", "the version that man pages name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(*man, 0o755); err != nil {
		return fmt.Errorf("--man: %w", err)
	}
	for _, program := range programs() {
		plain(program)
		keepLines(program)
		header := &doc.GenManHeader{Section: "1", Source: "Rouse " + *version, Manual: "Rouse"}
		if err := doc.GenManTree(program, header, *man); err != nil {
			return fmt.Errorf("write man pages: %w", err)
		}
	}
	return nil
}

func programs() []*cobra.Command { return []*cobra.Command{cli.Command(), kn.Command()} }

// keepLines indents lines as far as Markdown wants it of lines that stay as they are.
func keepLines(cmd *cobra.Command) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "\n  ", "\n      ")
	for _, c := range cmd.Commands() {
		keepLines(c)
	}
}

// plain removes generation times: the header has the date.
func plain(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		plain(c)
	}
}
