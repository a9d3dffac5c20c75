package functionstest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/internal/flagset"
)

// HeaderFault carries a request's own faults.
const HeaderFault = "X-Fault"

type options struct {
	Listen        string        `flag:"listen" help:"<endpoint> unix:/path or http://host:port"`
	Model         string        `flag:"model" help:"the model's <name>; others are unknown, \"any\" knows all"`
	PIDs          string        `flag:"pids" help:"<file> to which the process ids are written, one a line"`
	Starts        string        `flag:"starts" help:"<file> that counts the starts, one byte each"`
	Names         []string      `flag:"name" help:"further <name> of the model; repeat for more"`
	Port          int           `flag:"port" help:"listen on this <port> of 127.0.0.1"`
	Load          time.Duration `flag:"load" help:"time before it listens"`
	Announce      bool          `flag:"announce" help:"print \"listening on …\""`
	NeverReady    bool          `flag:"never-ready" help:"listen, but answer 503 to everything"`
	NoCompletions bool          `flag:"no-completions" help:"have no /v1/completions, only chat"`
	ExitCode      int           `flag:"exit" help:"exit at once with this <status>"`
	FailStarts    int           `flag:"fail-starts" help:"exit with status 1 in the first <n> starts (with -starts)"`
	HangAfter     int           `flag:"hang-after" help:"answer no generation after the first <n>"`
	ExitAfter     int           `flag:"exit-after" help:"exit with status 4 at the generation after the first <n>"`
	IgnoreTerm    bool          `flag:"ignore-term" help:"ignore SIGTERM"`
	Sleeps        bool          `flag:"sleeps" help:"have /sleep, /wake_up and vLLM's other calls"`
	WakeFails     bool          `flag:"wake-fails" help:"answer 500 to /wake_up"`
	Grandchild    string        `flag:"grandchild" help:"start a child of its own: <how> is group, session, orphan (a session whose parent has gone), or swarm (many that are hard to end; with -pids)"`
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{Model: "fake", ExitCode: -1}
	if len(args) >= 2 && args[0] == "engine" && args[1] == "serve" {
		args = args[2:]
		o.Announce, o.Sleeps = true, true
	}
	f := pflag.NewFlagSet("fake runtime", pflag.ContinueOnError)
	flagset.Add(f, &o)
	args = slices.Clone(args)
	for i, arg := range args { // one dash will do
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' {
			args[i] = "-" + arg
		}
	}
	if err := f.Parse(args); err != nil {
		fmt.Fprintln(stderr, "fake runtime:", err)
		return o, err
	}
	if o.Listen == "" {
		o.Listen = fmt.Sprintf("http://127.0.0.1:%d", o.Port)
	}
	return o, nil
}

// Main runs the server until SIGTERM and returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "linger" {
		return linger(args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return 2
	}
	fmt.Fprintln(stdout, "fake runtime starts")
	if code := o.early(stderr); code >= 0 {
		return code
	}
	if err := o.spawn(); err != nil {
		fmt.Fprintln(stderr, "fake runtime:", err)
		return 1
	}
	time.Sleep(o.Load)
	network, address := "tcp", strings.TrimPrefix(o.Listen, "http://")
	if path, found := strings.CutPrefix(o.Listen, "unix:"); found {
		network, address = "unix", path
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		fmt.Fprintln(stderr, "fake runtime:", err)
		return 1
	}
	s := &server{options: o, tags: map[string]bool{}}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, s.routes()) }()
	if o.Announce {
		fmt.Fprintln(stdout, "listening on", o.Listen)
	}
	for {
		select {
		case err := <-failed:
			fmt.Fprintln(stderr, "fake runtime:", err)
			return 1
		case <-term:
			if !o.IgnoreTerm {
				return 0
			}
			fmt.Fprintln(stdout, "fake runtime ignores SIGTERM")
		}
	}
}

// early handles flags that replace the server; -1: go on.
func (o options) early(stderr io.Writer) int {
	if o.Starts != "" {
		f, err := os.OpenFile(o.Starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Fprintln(stderr, "fake runtime:", err)
			return 1
		}
		_, _ = f.WriteString(".")
		info, err := f.Stat()
		_ = f.Close()
		if err == nil && info.Size() <= int64(o.FailStarts) {
			fmt.Fprintln(stderr, "out of memory: a start that fails as told")
			return 1
		}
	}
	if o.ExitCode >= 0 {
		fmt.Fprintln(stderr, "cannot load the model: exits as told")
		return o.ExitCode
	}
	return -1
}
