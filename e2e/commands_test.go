package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// commands are the scripts' own; testdata/script/README.md describes them.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"up":          up,
	"signal":      sendSignal,
	"downed":      downed,
	"noprocess":   noProcess,
	"waitfor":     waitFor,
	"killruntime": killRuntime,
	"killfn":      killFunctionCommand,
	"burst":       burstCommand,
	"burstwait":   burstWait,
	"sink":        sinkCommand,
	"sinkgot":     sinkGot,
	"stats":       statsCommand,
	"waitleft":    waitLeft,
	"waitlog":     waitLog,
	"spoil":       spoilCommand,
	"bytes":       bytesCommand,
	"ask":         ask,
	"files":       filesCommand,
	"fetched":     fetchedCommand,
}

// up [ARG …]: start a server.
func up(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("use: ! exec rouse up …")
	}
	p := placeOf(ts)
	p.dir = ts.MkAbs(".")
	p.extra = nil
	for _, name := range []string{"K_SINK", "PATH", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "OLLAMA_MODELS", "VLLMSIM_DEVICES", "VLLMSIM_FLAGS"} {
		p.extra = append(p.extra, name+"="+ts.Getenv(name))
	}
	ts.Check(p.start(args...))
	ts.Setenv("URL", p.server.url)
	ts.Setenv("PORT", p.server.port())
	ts.Setenv("ROUSE_SERVER", p.server.admin)
}

var signals = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}

// signal NAME [group]: send the server a signal, and after KILL wait for its end; with "group", as a terminal does, to all of its process group.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 || signals[args[0]] == 0 {
		ts.Fatalf("signal: %v", errUsage)
	}
	server := placeOf(ts).server
	pid := server.cmd.Process.Pid
	if len(args) == 2 {
		pid = -pid
	}
	ts.Check(syscall.Kill(pid, signals[args[0]]))
	if args[0] == "KILL" { // nothing that it could do before its end
		_, err := server.wait()
		ts.Check(err)
	}
}

// downed STATUS: wait until the server has ended with that exit status ("-" takes any), and no process is left.
func downed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("downed: %v", errUsage)
	}
	p := placeOf(ts)
	status, err := p.server.wait()
	ts.Check(err)
	if args[0] != "-" && args[0] != strconv.Itoa(status) {
		ts.Fatalf("the server ended with status %d, want %s:\n%s", status, args[0], p.server.output())
	}
	ts.Check(p.alone())
}

// noprocess [PATTERN]: wait until no process of the place matches.
func noProcess(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("noprocess: %v", errUsage)
	}
	p := placeOf(ts)
	if len(args) == 0 {
		ts.Check(p.alone())
		return
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	ts.Check(retry(func() error {
		all, err := p.processes()
		for _, process := range all {
			if pattern.MatchString(process) {
				return fmt.Errorf("a process is left: %s", process)
			}
		}
		return err
	}))
}

// waitfor [!] PATTERN COMMAND [ARG …]: run the command again and again until what it prints matches (or no longer does).
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("waitfor: %v", errUsage)
	}
	without := args[0] == "!"
	if without {
		args = args[1:]
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(retry(func() error {
		path := args[1]
		if path == "rouse" {
			path = filepath.Join(bin, "rouse")
		}
		cmd := exec.Command(path, args[2:]...)
		cmd.Dir = ts.MkAbs(".")
		cmd.Env = append(os.Environ(), append(placeOf(ts).env(), "ROUSE_SERVER="+ts.Getenv("ROUSE_SERVER"))...)
		out, err := cmd.CombinedOutput()
		if pattern.Match(out) == without {
			return fmt.Errorf("%s: %v; its output does not fit %s:\n%s", strings.Join(args[1:], " "), err, pattern, out) //nolint:errorlint // it may be nil
		}
		return nil
	}))
}

// killruntime NAME: SIGKILL a function's runtime.
func killRuntime(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("killruntime: %v", errUsage)
	}
	i, err := placeOf(ts).instance(args[0])
	ts.Check(err)
	ts.Check(syscall.Kill(i.PID, syscall.SIGKILL))
}

// killfn NAME: SIGKILL the parent of a function's runtime.
func killFunctionCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("killfn: %v", errUsage)
	}
	ts.Check(placeOf(ts).killFunction(args[0]))
}

// killFunction kills the parent of a function's runtime, which runs.
func (p *place) killFunction(name string) error {
	return retry(func() error {
		i, err := p.instanceNow(name)
		if err != nil {
			return err
		}
		parent, err := parentOf(i.PID)
		switch {
		case err != nil:
			return err
		case i.State != "awake" && i.State != "asleep":
			return fmt.Errorf("the runtime is %s", i.State)
		case parent == p.server.cmd.Process.Pid || parent <= 1:
			return fmt.Errorf("the runtime %d is a child of %d, want a process of its own between them", i.PID, parent)
		}
		return syscall.Kill(parent, syscall.SIGKILL)
	})
}

func parentOf(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if text, found := bytes.CutPrefix(line, []byte("PPid:")); found {
			return strconv.Atoi(string(bytes.TrimSpace(text)))
		}
	}
	return 0, fmt.Errorf("process %d has no parent", pid)
}

// stats NAME: set GENERATIONS and LEFT to what a function's fake runtime counted.
func statsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("stats: %v", errUsage)
	}
	s, err := placeOf(ts).stats(args[0])
	ts.Check(err)
	ts.Setenv("GENERATIONS", strconv.Itoa(s.Generations))
	ts.Setenv("LEFT", strconv.Itoa(s.Left))
}

// waitleft NAME N: wait until N clients have left a function's fake runtime.
func waitLeft(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("waitleft: %v", errUsage)
	}
	ts.Check(retry(func() error {
		s, err := placeOf(ts).stats(args[0])
		if err == nil && strconv.Itoa(s.Left) != args[1] {
			err = fmt.Errorf("%d clients have left %s, want %s", s.Left, args[0], args[1])
		}
		return err
	}))
}

// waitlog PATTERN: wait until the server has printed a line that matches.
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("waitlog: %v", errUsage)
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ts.Check(retry(func() error {
		if out := placeOf(ts).server.output(); !pattern.MatchString(out) {
			return fmt.Errorf("the server did not print %s:\n%s", pattern, out)
		}
		return nil
	}))
}

// bytes FILE N [PIECE]: write N copies of a piece of text to a file.
func bytesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("bytes: %v", errUsage)
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	piece, err := strconv.Unquote(`"` + args[2] + `"`)
	ts.Check(err)
	_, err = f.WriteString(strings.Repeat(piece, n))
	ts.Check(err)
	ts.Check(f.Close())
}

// files FOLDER [cut|hold]: serve a folder over HTTP, with ranges, and set FILES; with
// "cut" the first answer to each path breaks off in its middle, with "hold" it stays
// there until the client leaves.
func filesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("files: %v", errUsage)
	}
	s := &files{next: http.FileServer(http.Dir(ts.MkAbs(args[0]))), seen: map[string]int{}}
	if len(args) == 2 {
		if s.first = args[1]; s.first != "cut" && s.first != "hold" {
			ts.Fatalf("files: %v", errUsage)
		}
	}
	server := httptest.NewServer(s)
	ts.Defer(server.Close)
	placeOf(ts).files = s
	ts.Setenv("FILES", server.URL)
}

// files is a file server that counts.
type files struct {
	next  http.Handler
	first string // what the first answer to a path does: "cut", "hold", or ""

	mu   sync.Mutex     // guards seen
	seen map[string]int // GET requests for content by path
}

// ServeHTTP implements http.Handler.
func (s *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first := false
	if r.Method == http.MethodGet && r.Header.Get("Range") != "bytes=0-0" { // which asks for the size
		s.mu.Lock()
		s.seen[r.URL.Path]++
		first = s.seen[r.URL.Path] == 1
		s.mu.Unlock()
	}
	if first && s.first != "" {
		cut := &cutWriter{ResponseWriter: w, left: 100 << 10}
		if s.first == "hold" {
			cut.leave = r.Context().Done()
		}
		w = cut
	}
	s.next.ServeHTTP(w, r)
}

// cutWriter breaks the connection off after some bytes, or once the client leaves.
type cutWriter struct {
	http.ResponseWriter
	left  int
	leave <-chan struct{} // nil: at once
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		if c.leave != nil {
			<-c.leave
		}
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// fetched PATH N: the file server was asked N times for the content of a path.
func fetchedCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := placeOf(ts).files
	if neg || s == nil || len(args) != 2 {
		ts.Fatalf("fetched: %v", errUsage)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strconv.Itoa(s.seen[args[0]]); got != args[1] {
		ts.Fatalf("%s was asked for %s times, want %s; all: %v", args[0], got, args[1], s.seen)
	}
}

// ask BODY: send a chat request with curl; standard output is the answer and then the status as "[200]".
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("ask: %v", errUsage)
	}
	cmd := exec.Command("curl", "-sS", "-m", "60", "-w", "[%{http_code}]", ts.Getenv("URL")+"/v1/chat/completions",
		"-H", "Content-Type: application/json", "--data-binary", args[0])
	cmd.Dir = ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	ts.Check(cmd.Run())
}
