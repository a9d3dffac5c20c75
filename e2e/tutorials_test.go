package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the commands of docs/tutorials print into them")

// TestTutorials runs the commands of docs/tutorials as a reader does, each page in an empty folder, with a home and a
// network of its own, and compares what they print with the page. -update writes it there. Of a page count
//
//	```console         commands behind "$ ", and what they print
//	```console server  a command that goes on, on a terminal, and the first lines that it prints
//	```console skip    commands that need what a test has not
//	```yaml            a file, if the first line is a comment that begins with its name
//
// A line of "…" stands for any lines, and "…" in a line for any text. Times, sizes and ids may differ.
func TestTutorials(t *testing.T) {
	pages, err := filepath.Glob("../docs/tutorials/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no tutorials: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			raw, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			r := newReader(t)
			text := r.read(string(raw))
			if *update && !t.Failed() {
				if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// reader is somebody who follows a tutorial: a shell, and the servers that they have started.
type reader struct {
	t       *testing.T
	place   *place
	dir     string
	in      *os.File
	out     *bufio.Reader
	servers int
}

// newReader starts a shell in an empty folder. It ends with the test, and so does what was started in it.
func newReader(t *testing.T) *reader {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, place: p, dir: filepath.Join(p.dir, "w")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "--norc")
	shell.Dir, shell.Stdin, shell.Stdout, shell.Stderr = r.dir, in, out, out
	shell.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "TERM=xterm", "COLUMNS=100", "NO_COLOR=1")
	shell.Env = append(shell.Env, p.env()...)
	shell.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := shell.Start(); err != nil {
		t.Skipf("no network of its own: %v", err)
	}
	_, _ = in.Close(), out.Close()
	r.in, r.out = stdin, bufio.NewReader(stdout)
	t.Cleanup(func() {
		_ = stdin.Close()
		left, _ := p.processes()
		for _, line := range left {
			var pid int
			if _, err := fmt.Sscan(line, &pid); err == nil && strings.Contains(line, "rouse up") {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		_ = shell.Wait()
		_ = stdout.Close()
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	r.run("ip link set lo up")
	return r
}

// read follows a page, and returns it with what was printed.
func (r *reader) read(page string) string {
	lines := strings.SplitAfter(page, "\n")
	var text strings.Builder
	for k := 0; k < len(lines); k++ {
		text.WriteString(lines[k])
		kind, is := strings.CutPrefix(strings.TrimSpace(lines[k]), "```")
		if !is {
			continue
		}
		end := k + 1
		for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
			end++
		}
		block := strings.Join(lines[k+1:end], "")
		switch {
		case kind == "console":
			block = r.console(block)
		case kind == "console server":
			block = r.server(block)
		case kind == "yaml":
			r.file(block)
		}
		text.WriteString(block)
		if end < len(lines) {
			text.WriteString(lines[end])
		}
		k = end
	}
	return text.String()
}

// fileName is the name of a file in the comment that it begins with.
var fileName = regexp.MustCompile(`^# ([\w.-]+\.\w+)\b`)

func (r *reader) file(text string) {
	if m := fileName.FindStringSubmatch(text); m != nil {
		if err := os.WriteFile(filepath.Join(r.dir, m[1]), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// looks matches commands that change nothing.
var looks = regexp.MustCompile(`^rouse (ls|clusters|why|usage|keys list)$|^rouse why `)

// console runs the commands of a block, and returns it with what they printed.
func (r *reader) console(block string) string {
	var text strings.Builder
	for _, c := range commandsOf(block) {
		got := r.run(c.line)
		if looks.MatchString(c.line) { // what it shows may come a moment later
			_ = retry(func() error {
				if matches(c.want, got) || *update {
					return nil
				}
				got = r.run(c.line)
				return errors.New("it says something else")
			})
		}
		r.compare(c, got)
		fmt.Fprintf(&text, "$ %s\n%s", c.line, merged(c.want, got))
	}
	return text.String()
}

// command is one of a block, with what the page says that it prints.
type command struct{ line, want string }

func commandsOf(block string) (all []command) {
	for _, line := range strings.SplitAfter(block, "\n") {
		switch c, is := strings.CutPrefix(line, "$ "); {
		case is:
			all = append(all, command{line: strings.TrimSuffix(c, "\n")})
		case len(all) == 0:
		case unfinished(all[len(all)-1]):
			all[len(all)-1].line += "\n" + strings.TrimSuffix(line, "\n")
		default:
			all[len(all)-1].want += line
		}
	}
	return all
}

// unfinished says whether the next line belongs to the command: behind a backslash, and in a here-document.
func unfinished(c command) bool {
	return c.want == "" && (strings.HasSuffix(c.line, `\`) || strings.Contains(c.line, "<<EOF\n") && !strings.HasSuffix(c.line, "\nEOF") || strings.HasSuffix(c.line, "<<EOF"))
}

// mark is printed behind each command.
const mark = "--- that was it ---"

// run runs a command in the shell, and returns what it printed.
func (r *reader) run(line string) string {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.in, "%s\necho '%s'\n", line, mark); err != nil {
		r.t.Fatal(err)
	}
	ended := time.AfterFunc(2*patience, func() { _ = r.in.Close(); r.kill() })
	defer ended.Stop()
	var got strings.Builder
	for {
		l, err := r.out.ReadString('\n')
		if before, is := strings.CutSuffix(l, mark+"\n"); is {
			got.WriteString(before)
			break
		}
		if err != nil {
			r.t.Fatalf("%s\ndoes not end; it has printed:\n%s", line, got.String())
		}
		got.WriteString(l)
	}
	text := r.athome(got.String())
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// kill ends all that runs.
func (r *reader) kill() {
	left, _ := r.place.processes()
	for _, line := range left {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// server starts the command of a block on a terminal of its own, and waits until it has printed what the page says.
func (r *reader) server(block string) string {
	c := commandsOf(block)[0]
	r.servers++
	log := filepath.Join(r.place.dir, fmt.Sprintf("terminal-%d", r.servers))
	r.run(fmt.Sprintf("script -qefc %s %s </dev/null >/dev/null 2>&1 &", quoted("stty cols 100 rows 40; exec "+strings.ReplaceAll(c.line, "\\\n", " ")), log))
	var got string
	err := retry(func() error {
		raw, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		got = r.athome(printed(raw))
		n := strings.Count(c.want, "\n")
		if *update && strings.Contains(got, "stop:") {
			return nil
		}
		if lines := strings.SplitAfter(got, "\n"); len(lines) >= n {
			got = strings.Join(lines[:n], "")
		}
		if !matches(c.want, got) {
			return fmt.Errorf("it prints:\n%s", got)
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v\nwant:\n%s", c.line, err, c.want)
	}
	if i := strings.Index(got, "stop:"); *update && i >= 0 {
		got = got[:i] + strings.SplitAfter(got[i:], "\n")[0]
	}
	return fmt.Sprintf("$ %s\n%s", c.line, merged(c.want, got))
}

// athome has the reader's home as a reader would write it.
func (r *reader) athome(text string) string { return strings.ReplaceAll(text, r.place.dir, "~") }

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// printed is what a terminal shows of a log of script(1).
func printed(raw []byte) string {
	raw = bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
	if _, rest, is := bytes.Cut(raw, []byte("\n")); is && bytes.HasPrefix(raw, []byte("Script started")) {
		raw = rest
	}
	return regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`).ReplaceAllString(string(raw), "")
}

// compare fails the test where a command prints something else than the page says.
func (r *reader) compare(c command, got string) {
	r.t.Helper()
	if !*update && !matches(c.want, got) {
		r.t.Errorf("$ %s\n(-page +printed)\n%s", c.line, cmp.Diff(normal(c.want), normal(got)))
	}
}

// merged is what is printed now, or what the page has if that says the same.
func merged(want, got string) string {
	if matches(want, got) {
		return want
	}
	return got
}

// differs is what may differ from one run to the next: durations, times of day, sizes, ids, sums, tokens and the version.
var differs = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ns|µs|ms|s|m|h)([0-9]+(\.[0-9]+)?(ms|s|m))*\b` +
	`|\b[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?\b|\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b|\b[0-9]+(\.[0-9]+)? [KMG]iB\b|;dur=[0-9.]+` +
	`|\brouse-[a-z2-7]{30,}\b|\b(chatcmpl-|req_|resp_)[A-Z0-9]+\b|"created":[0-9]+|\b[0-9a-f]{64}\b|#token=\S+|\brouse (v[0-9]\S*|dev|[0-9a-f]{7,}(-dirty)?) |[0-9.]+ tokens/s` +
	`|\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4}\b`)

// normal is a text without what may differ, and without the spaces that columns are made of.
func normal(text string) string {
	text = differs.ReplaceAllString(text, "•")
	text = strings.ReplaceAll(text, " · queue •", "") // where it is nothing it is not told
	text = regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " ")
	return regexp.MustCompile(`(?m)(^| )-( |$)`).ReplaceAllString(text, "$1•$2") // a size that is not known yet
}

// matches says whether a page tells what was printed.
func matches(want, got string) bool {
	if want == "" {
		return got == ""
	}
	pattern := regexp.QuoteMeta(normal(want))
	pattern = strings.ReplaceAll(pattern, "…\n", "….*\n")
	pattern = regexp.MustCompile(`(?m)^….\*\n`).ReplaceAllString(pattern, "(?:.*\n)*")
	pattern = strings.ReplaceAll(pattern, "….*", ".*")
	pattern = strings.ReplaceAll(pattern, "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(normal(got))
}

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
	} {
		if is := matches(c.want, c.got); is != c.is {
			t.Errorf("matches(%q, %q) = %v, want %v", c.want, c.got, is, c.is)
		}
	}
}
