package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/shlex"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md, docs/metrics.md and docs/paths.md")

// TestCommandsAreDocumented keeps docs/cli.md equal to what the commands say.
func TestCommandsAreDocumented(t *testing.T) {
	t.Setenv("HOME", "/home/you") // defaults name folders below it
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	compare(t, "cli", func() (string, error) { return page(programs()), nil })
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

// TestMetricsAreDocumented keeps docs/metrics.md equal to what the programs expose.
func TestMetricsAreDocumented(t *testing.T) { compare(t, "metrics", metricsPage) }

// TestPathsAreDocumented keeps docs/paths.md equal to what the routers have.
func TestPathsAreDocumented(t *testing.T) { compare(t, "paths", pathsPage) }

// compare checks that a page equals the programs' output.
func compare(t *testing.T, name string, page func() (string, error)) {
	path := "../../../docs/" + name + ".md"
	want, err := page()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run `make keys`", err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date, run `make keys` (-want +got):\n%s", path, diff)
	}
}

// TestAllMetricsAreListed: each package that makes metrics is one that the page asks.
func TestAllMetricsAreListed(t *testing.T) {
	makers := map[string]bool{}
	const root = "../../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch rel, _ := filepath.Rel(root, path); {
		case err != nil:
			return err
		case d.IsDir() && (rel == "e2e" || strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && makes.Match(text) {
			makers[filepath.ToSlash(filepath.Dir(path))] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	imports, err := os.ReadFile("metrics_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for dir := range makers {
		name := strings.TrimPrefix(dir, root+"/")
		if !strings.Contains(string(imports), `"github.com/rouse-dev/rouse/`+name+`"`) {
			t.Errorf("%s makes metrics and docs/metrics.md does not have them: add it to parts", name)
		}
	}
	if len(makers) < 9 {
		t.Errorf("%d packages make metrics: the test looks in the wrong place", len(makers))
	}
}

// makes is how a package makes a metric.
var makes = regexp.MustCompile(`prometheus\.New(Counter|Gauge|Histogram|Summary|Desc|Untyped)(Vec|Func)?\(`)

// TestManPages has a page for each command, with its flags, the same twice.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := run([]string{"--man", dir, "--version", "v1.2.3"}); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := os.ReadDir(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		a, _ := os.ReadFile(filepath.Join(one, p.Name()))
		b, _ := os.ReadFile(filepath.Join(two, p.Name()))
		if len(a) == 0 || string(a) != string(b) {
			t.Errorf("%s is not the same twice", p.Name())
		}
	}
	for name, want := range map[string]string{"rouse.1": "v1.2.3", "rouse-up.1": "listen", "rouse-run.1": ".EX\n  arrow keys", "kn-rouse-why.1": "kn rouse why"} {
		text, err := os.ReadFile(filepath.Join(one, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q: %v", name, want, err)
		}
	}
}

// TestExamplesAreUnderstood: each example of a command names commands and flags that there are.
func TestExamplesAreUnderstood(t *testing.T) {
	seen := 0
	for _, program := range programs() {
		walk(program, func(c *cobra.Command) {
			for line := range strings.Lines(c.Example) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
				line, _, _ = strings.Cut(line, " | ")
				line, _, _ = strings.Cut(line, " > ")
				args, is := strings.CutPrefix(line, program.CommandPath()+" ")
				if !is {
					continue
				}
				seen++
				words, err := shlex.Split(strings.TrimSuffix(args, `\`))
				if err != nil {
					t.Errorf("%s: %v", line, err)
				}
				found, rest, err := program.Find(words)
				if err != nil || found == program {
					t.Errorf("%s: there is no such command: %v", line, err)
					continue
				}
				for _, arg := range rest {
					if arg == "--" {
						break
					}
					name, is := strings.CutPrefix(strings.Trim(arg, `"'`), "--")
					name, _, _ = strings.Cut(name, "=")
					if is && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil {
						t.Errorf("%s: %s has no flag --%s", line, found.CommandPath(), name)
					}
				}
			}
		})
	}
	if seen < 40 {
		t.Errorf("%d examples: the test looks in the wrong place", seen)
	}
}

// walk visits a command and those below it.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		walk(below, visit)
	}
}
