package pages

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Config configures a [Shell].
type Config struct {
	Dir string
	// pages write it "~"; logs of terminals are there
	Home string
	// all of it
	Env []string
	// Alone gives it a network of its own; that needs root.
	Alone bool
	// bounds each command
	Patience time.Duration
	// accepts an output that differs from the page
	Update bool
}

var errShell = errors.New("the shell does not go on")

// Shell is a reader at a terminal, with the servers that they started.
type Shell struct {
	cfg     Config
	process *exec.Cmd
	in      *os.File
	out     *bufio.Reader
	outFile *os.File
	servers int
}

// Open starts a shell. [Shell.Close] ends it.
func Open(cfg Config) (*Shell, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &Shell{cfg: cfg, process: exec.Command("bash", "--norc"), in: stdin, out: bufio.NewReader(stdout), outFile: stdout}
	s.process.Dir, s.process.Stdin, s.process.Stdout, s.process.Stderr, s.process.Env = cfg.Dir, in, out, out, cfg.Env
	if cfg.Alone {
		s.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	err = s.process.Start()
	_, _ = in.Close(), out.Close()
	if err != nil {
		_, _ = stdin.Close(), stdout.Close()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	if cfg.Alone {
		if err := s.must("ip link set lo up"); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close ends the servers and the shell, and waits for them.
func (s *Shell) Close() error {
	err := s.stop()
	_ = s.in.Close()
	ended := time.AfterFunc(s.cfg.Patience, func() { _ = s.process.Process.Kill() })
	defer ended.Stop()
	_ = s.process.Wait() // its last command may have failed
	return errors.Join(err, s.outFile.Close())
}

// mark is printed after each command, with its status.
const mark = "--- that was it ---"

func (s *Shell) run(line string) (text, status string, err error) {
	if _, err := fmt.Fprintf(s.in, "%s\necho '%s' $?\n", line, mark); err != nil {
		return "", "", fmt.Errorf("%w: %w", errShell, err)
	}
	var late atomic.Bool
	ended := time.AfterFunc(s.cfg.Patience, func() {
		late.Store(true)
		_ = s.process.Process.Kill()
		_ = s.outFile.Close()
	})
	defer ended.Stop()
	var got strings.Builder
	for {
		l, err := s.out.ReadString('\n')
		if before, after, is := strings.Cut(l, mark); is {
			got.WriteString(before)
			status = strings.TrimSpace(after)
			break
		}
		if err != nil {
			return "", "", fmt.Errorf("%w (too late: %v): %s\nit has printed:\n%s", errShell, late.Load(), line, got.String())
		}
		got.WriteString(l)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(got.String(), "\r\n", "\n"), s.cfg.Home, "~")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text, status, nil
}

func (s *Shell) must(lines string) error {
	text, status, err := s.run(lines)
	if err == nil && status != "0" {
		err = fmt.Errorf("%s: status %s\n%s", lines, status, text)
	}
	return err
}

func (s *Shell) file(text string) error {
	m := fileName.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(s.cfg.Dir, m[1]), []byte(text), 0o600)
}

// looks matches commands that change nothing: their output may be late.
var looks = regexp.MustCompile(`^(kn )?rouse (ls|list|clusters|usage|keys list)\b|^(kn )?rouse (why|trace|describe) |^kubectl .*\bget `)

// console returns a block with its commands' outputs.
func (s *Shell) console(block string) (string, error) {
	var text strings.Builder
	var wrong error
	for _, c := range commandsOf(block) {
		got, _, err := s.run(c.line)
		if err != nil {
			return "", err
		}
		for wait := time.Now().Add(s.cfg.Patience / 4); looks.MatchString(c.line) && !s.cfg.Update && !Matches(c.want, got) && time.Now().Before(wait); {
			time.Sleep(100 * time.Millisecond)
			if got, _, err = s.run(c.line); err != nil {
				return "", err
			}
		}
		if !s.cfg.Update && !Matches(c.want, got) {
			wrong = errors.Join(wrong, fmt.Errorf("$ %s\n(-page +printed)\n%s", c.line, cmp.Diff(Normal(c.want), Normal(got))))
		}
		fmt.Fprintf(&text, "$ %s\n%s", c.line, merged(c.want, got))
	}
	return text.String(), wrong
}

// server waits until the command has printed what the page says.
func (s *Shell) server(block string) (string, error) {
	c := commandsOf(block)[0]
	log, err := s.begin(c.line)
	if err != nil {
		return "", err
	}
	for wait := time.Now().Add(s.cfg.Patience); ; time.Sleep(50 * time.Millisecond) {
		got := s.printed(log)
		if i := strings.Index(got, "stop:"); s.cfg.Update && i >= 0 {
			got = got[:i] + strings.SplitAfter(got[i:], "\n")[0]
			return fmt.Sprintf("$ %s\n%s", c.line, merged(c.want, got)), nil
		}
		if begins(got, c.want) {
			return block, nil
		}
		if time.Now().After(wait) {
			return "", fmt.Errorf("$ %s\nit prints:\n%s\n(-page +printed)\n%s", c.line, got, cmp.Diff(Normal(c.want), Normal(got)))
		}
	}
}

func begins(text, want string) bool {
	lines := strings.SplitAfter(text, "\n")
	for n := range lines {
		if Matches(want, strings.Join(lines[:n], "")) {
			return true
		}
	}
	return false
}

// logged waits for lines of any server.
func (s *Shell) logged(block string) (string, error) {
	for wait := time.Now().Add(s.cfg.Patience / 4); ; time.Sleep(100 * time.Millisecond) {
		var all strings.Builder
		for n := range s.servers {
			log := s.printed(s.terminal(n + 1))
			all.WriteString(log)
			if Matches("…\n"+block+"…\n", log) {
				return block, nil
			}
		}
		if time.Now().After(wait) {
			return block, fmt.Errorf("no server prints\n%sThey print\n%s", block, all.String())
		}
	}
}

func (s *Shell) terminal(n int) string {
	return filepath.Join(s.cfg.Home, fmt.Sprintf("terminal-%d", n))
}

var ready = regexp.MustCompile(`(?m)^(stop:|listening on )|^\s*stop:|\n\s*stop:`)

// serveUnseen starts a server that the page does not show.
func (s *Shell) serveUnseen(line string) error {
	log, err := s.begin(line)
	if err != nil {
		return err
	}
	for wait := time.Now().Add(s.cfg.Patience); !ready.MatchString(s.printed(log)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(wait) {
			return fmt.Errorf("%s does not serve; it prints:\n%s", line, s.printed(log))
		}
	}
	return nil
}

// begin returns where the command's terminal is logged.
func (s *Shell) begin(line string) (log string, err error) {
	s.servers++
	log = s.terminal(s.servers)
	line = "stty cols 100 rows 40; exec " + strings.ReplaceAll(line, "\\\n", " ")
	return log, s.must(fmt.Sprintf("script -qefc %s %s </dev/null >/dev/null 2>&1 &", "'"+strings.ReplaceAll(line, "'", `'\''`)+"'", log))
}

func (s *Shell) stop() error {
	return s.must(`for p in $(jobs -p); do for c in $(cat /proc/$p/task/$p/children); do kill -TERM $c; done; done; wait; true`)
}

// printed returns what a terminal shows for a log of script(1).
func (s *Shell) printed(log string) string {
	raw, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	raw = bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
	if _, rest, is := bytes.Cut(raw, []byte("\n")); is && bytes.HasPrefix(raw, []byte("Script started")) {
		raw = rest
	}
	return strings.ReplaceAll(regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`).ReplaceAllString(string(raw), ""), s.cfg.Home, "~")
}
