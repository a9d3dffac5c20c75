package pages

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMatches has what a page may leave out.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		is        bool
	}{
		{"a 1.5ms\n", "a 20ms\n", true},
		{"a\n", "b\n", false},
		{"a\n", "a\nb\n", false},
		{"a\n…\n", "a\nb\nc\n", true},
		{"a\n…\nd\n", "a\nb\nc\n", false},
		{"a …\n", "a b\n", true},
		{"NAME   STATE\n", "NAME STATE\n", true},
		{"", "a\n", false},
		{"[hold 1ms · queue 2µs · 4 tokens]\n", "[hold 3ms · 4 tokens]\n", true},
		{`{"id":"file-33lecam8rmd2qjslmjrtdrzo3nlnigtznvkbt66","bytes":1}` + "\n", `{"id":"file-44lecam8rmd2qjslmjrtdrzo3nlnigtznvkbt66","bytes":2}` + "\n", false},
	} {
		if is := Matches(c.want, c.got); is != c.is {
			t.Errorf("Matches(%q, %q) = %v, want %v", c.want, c.got, is, c.is)
		}
	}
}

// TestParse: a page comes out as it went in, and comments belong to their blocks.
func TestParse(t *testing.T) {
	const page = "# A\n\n<!-- run: true -->\n<!-- run:\nfalse\n-->\n<!-- not run: it needs a GPU -->\n```console\n$ a\nb\n```\n\n<!-- cluster -->\n\n```console server\n$ c\n```\ntext\n<!-- stop -->\nend\n"
	p, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	var out, seen strings.Builder
	for _, b := range p.Blocks {
		if b.Fenced || b.Info == "" {
			out.WriteString(b.before + b.Text + b.after)
		} else {
			out.WriteString(b.before)
		}
		if b.Info != "" {
			seen.WriteString(b.Info + "|" + b.Text + "|" + b.NotRun + "|")
			if b.Cluster {
				seen.WriteString("cluster")
			}
			seen.WriteString(";")
		}
	}
	if out.String() != page {
		t.Errorf("it becomes\n%s", out.String())
	}
	if want := "run|true||;run|false||;console|$ a\nb\n|it needs a GPU|;console server|$ c\n||cluster;stop|||;"; seen.String() != want {
		t.Errorf("got %q, want %q", seen.String(), want)
	}
	for _, bad := range []string{"```console\n$ a\n", "<!-- not run: why -->\ntext\n", "<!-- not run: -->\n```console\n```\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}

// TestFollow: what a page says wrongly is found, and a command that does not end.
func TestFollow(t *testing.T) {
	open := func(patience time.Duration, update bool) *Shell {
		s, err := Open(Config{Dir: t.TempDir(), Home: t.TempDir(), Env: os.Environ(), Patience: patience, Update: update})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const page = "<!-- run: echo two >f -->\n```console\n$ echo one\none\n$ cat f\nthree\n```\n<!-- cluster -->\n```console\n$ exit 1\n```\n```yaml\n# g.yaml\nx: 1\n```\n```console\n$ cat g.yaml\n# g.yaml\nx: 1\n```\n"
	p, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Follow(open(30*time.Second, false), false); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "three") || strings.Contains(err.Error(), "echo one") {
		t.Errorf("got %v", err)
	}
	if text, err := p.Follow(open(30*time.Second, true), false); err != nil || text != strings.Replace(page, "three", "two", 1) {
		t.Errorf("got %v:\n%s", err, text)
	}
	p, err = Parse("```console\n$ read -r x < <(sleep 60)\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Follow(open(100*time.Millisecond, false), false); err == nil || !strings.Contains(err.Error(), "does not go on") {
		t.Errorf("got %v", err)
	}
}

// command looks like something that one types.
var typed = regexp.MustCompile(`(?m)^(\$ |(bin/)?(rouse|kn-rouse|kn|kubectl|curl|make|go|helm|export|docker|ollama|sh|apt|dnf|brew|claude|codex|npm|openssl|systemctl) )`)

// kinds are those of blocks without commands.
var kinds = []string{"yaml", "json", "toml", "go", "dockerfile", "text", "nginx", "python", "js", "ini", "jinja", "console log"}

// TestAllCommandsRun: in each page that people read, each block says what it is, and each with commands is run or says why not.
func TestAllCommandsRun(t *testing.T) {
	files, seen, marked, tests := documents(t), 0, 0, testNames(t)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(string(raw))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, b := range p.Blocks {
			switch {
			case b.Shell():
				seen++
				if b.NotRun != "" {
					marked++
					for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(b.NotRun, -1) {
						if !tests[name] {
							t.Errorf("%s:%d: there is no %s", file, b.Line, name)
						}
					}
					for _, path := range regexp.MustCompile(`\b(e2e|docs|engine)/[\w./-]+`).FindAllString(b.NotRun, -1) {
						if _, err := os.Stat("../../" + path); err != nil {
							t.Errorf("%s:%d: %v", file, b.Line, err)
						}
					}
				}
				if !strings.HasPrefix(strings.TrimSpace(b.Text), "$ ") {
					t.Errorf("%s:%d: a block of commands that does not begin with one, behind \"$ \"", file, b.Line)
				}
			case b.Fenced && !slices.Contains(kinds, b.Info):
				t.Errorf("%s:%d: a block of kind %q: want console, console server or one of %v", file, b.Line, b.Info, kinds)
			case b.Fenced && typed.MatchString(b.Text) && b.NotRun == "":
				t.Errorf("%s:%d: commands in a block that is not run: make it a console", file, b.Line)
			case b.Info == "":
				for n, line := range strings.Split(b.Text, "\n") {
					if rest, is := strings.CutPrefix(line, "    "); is && typed.MatchString(rest) {
						t.Errorf("%s, text that ends in line %d, its line %d: commands that are not run: make it a console between fences: %s", file, b.Line, n+1, line)
					}
				}
			}
		}
	}
	t.Logf("%d blocks of commands on %d pages; %d are not run", seen, len(files), marked)
	if seen < 50 || len(files) < 20 {
		t.Errorf("%d blocks of commands on %d pages: the test looks in the wrong place", seen, len(files))
	}
}

// testNames are the tests of this module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "node_modules" {
			return cmp.Or(err, fs.SkipDir)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// documents are the pages that people read, but for those that are made from code.
func documents(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "design" || d.Name() == "runbooks"), strings.HasSuffix(path, "docs/cli.md"):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case strings.HasSuffix(path, ".md"):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(all, "../../README.md")
}
