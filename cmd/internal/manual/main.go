// Command manual writes what the programs say of themselves: the command lines of rouse and kn rouse,
// the metrics of all, and their HTTP paths.
//
//	go run ./cmd/internal/manual --markdown docs/cli.md       one page of all commands
//	go run ./cmd/internal/manual --metrics docs/metrics.md     all metrics of all programs
//	go run ./cmd/internal/manual --paths docs/paths.md        all HTTP paths for clients and administrators
//	go run ./cmd/internal/manual --man FOLDER --version v1.2.0  a man page for each command
//
// The same commands make the same bytes: the date of the man pages is SOURCE_DATE_EPOCH.
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
	markdown := flags.String("markdown", "", "the `file` to write with all commands")
	metrics := flags.String("metrics", "", "the `file` to write with all metrics")
	paths := flags.String("paths", "", "the `file` to write with all HTTP paths")
	man := flags.String("man", "", "the `folder` to write man pages into")
	version := flags.String("version", "dev", "the version that man pages name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *markdown != "" {
		if err := os.WriteFile(*markdown, []byte(page(programs())), 0o644); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	for _, made := range []struct {
		file string
		page func() (string, error)
	}{{*metrics, metricsPage}, {*paths, pathsPage}} {
		if made.file == "" {
			continue
		}
		text, err := made.page()
		if err != nil {
			return err
		}
		if err := os.WriteFile(made.file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	if *man == "" {
		return nil
	}
	if err := os.MkdirAll(*man, 0o755); err != nil {
		return fmt.Errorf("write man pages: %w", err)
	}
	for _, program := range programs() {
		plain(program)
		header := &doc.GenManHeader{Section: "1", Source: "Rouse " + *version, Manual: "Rouse"}
		if err := doc.GenManTree(program, header, *man); err != nil {
			return fmt.Errorf("write man pages: %w", err)
		}
	}
	return nil
}

// programs are the command lines that people use.
func programs() []*cobra.Command { return []*cobra.Command{cli.Command(), kn.Command()} }

// plain takes from commands what a man page must not have: when it was made is its header's to say.
func plain(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		plain(c)
	}
}

// page is all commands of the programs, each as its --help says it.
func page(programs []*cobra.Command) string {
	var text strings.Builder
	text.WriteString("# Commands\n\nWhat each command says with `--help`. This page is made from the programs by `make keys`.\n")
	for _, p := range programs {
		fmt.Fprintf(&text, "\n## %s\n", p.CommandPath())
		if p.Long != "" {
			fmt.Fprintf(&text, "\n```\n%s\n```\n", strings.TrimSpace(p.Long))
		}
		if flags := strings.TrimRight(p.PersistentFlags().FlagUsages(), "\n"); flags != "" {
			fmt.Fprintf(&text, "\nAll commands have these flags:\n\n```\n%s\n```\n", flags)
		}
		for _, c := range p.Commands() {
			command(&text, c)
		}
	}
	return text.String()
}

// command writes a command, and those below it.
func command(text *strings.Builder, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	var parts []string
	if about := strings.TrimSpace(c.Long); about != "" && about != c.Short {
		parts = append(parts, about)
	}
	if c.Runnable() {
		parts = append(parts, "Usage:\n  "+c.UseLine())
	}
	if c.HasExample() {
		parts = append(parts, "Examples:\n"+strings.TrimRight(c.Example, "\n"))
	}
	if flags := c.LocalNonPersistentFlags(); flags.HasAvailableFlags() {
		parts = append(parts, "Flags:\n"+strings.TrimRight(flags.FlagUsages(), "\n"))
	}
	fmt.Fprintf(text, "\n### %s\n\n%s.\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
	if len(parts) > 0 {
		fmt.Fprintf(text, "\n```\n%s\n```\n", strings.Join(parts, "\n\n"))
	}
	for _, below := range c.Commands() {
		command(text, below)
	}
}
