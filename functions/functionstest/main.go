package functionstest

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// HeaderFault carries a request's own fault, see the package comment.
const HeaderFault = "X-Fault"

type options struct {
	listen, model, pids, starts                string
	names                                      names
	port                                       int
	load, wake, sleep                          time.Duration
	announce, neverReady, noCompletions        bool
	exitCode, failStarts, hangAfter, exitAfter int
	ignoreTerm, sleeps, wakeFails              bool
	grandchild                                 string
}

type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(s string) error {
	*n = append(*n, s)
	return nil
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("fake runtime", flag.ContinueOnError)
	f.SetOutput(stderr)
	if len(args) >= 2 && args[0] == "engine" && args[1] == "serve" {
		args = args[2:]
		o.announce, o.sleeps = true, true
	}
	f.StringVar(&o.listen, "listen", "", "`endpoint` unix:/path or http://host:port")
	f.IntVar(&o.port, "port", 0, "listen on this `port` of 127.0.0.1")
	f.StringVar(&o.model, "model", "fake", "the model's `name`; others are unknown, \"any\" knows all")
	f.Var(&o.names, "name", "further `name` of the model; repeat for more")
	f.DurationVar(&o.load, "load", 0, "time before it listens")
	f.DurationVar(&o.wake, "wake", 0, "time that a wake takes")
	f.DurationVar(&o.sleep, "sleep", 0, "time that a sleep takes")
	f.BoolVar(&o.announce, "announce", o.announce, "print \"listening on …\"")
	f.BoolVar(&o.neverReady, "never-ready", false, "listen, but answer 503 to everything")
	f.BoolVar(&o.noCompletions, "no-completions", false, "have no /v1/completions, only chat")
	f.IntVar(&o.exitCode, "exit", -1, "exit at once with this `status`")
	f.StringVar(&o.starts, "starts", "", "`file` that counts the starts, one byte each")
	f.IntVar(&o.failStarts, "fail-starts", 0, "exit with status 1 in the first `n` starts (with -starts)")
	f.IntVar(&o.hangAfter, "hang-after", 0, "answer no generation after the first `n`")
	f.IntVar(&o.exitAfter, "exit-after", 0, "exit with status 4 at the generation after the first `n`")
	f.BoolVar(&o.ignoreTerm, "ignore-term", false, "ignore SIGTERM")
	f.BoolVar(&o.sleeps, "sleeps", o.sleeps, "have /sleep, /wake_up and vLLM's other calls")
	f.BoolVar(&o.wakeFails, "wake-fails", false, "answer 500 to /wake_up")
	f.StringVar(&o.grandchild, "grandchild", "", "start a child of its own: `how` is group, session, orphan (a session whose parent has gone), or swarm (many that are hard to end; with -pids)")
	f.StringVar(&o.pids, "pids", "", "`file` to which the process ids are written, one a line")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.listen == "" {
		o.listen = fmt.Sprintf("http://127.0.0.1:%d", o.port)
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
	time.Sleep(o.load)
	network, address := "tcp", strings.TrimPrefix(o.listen, "http://")
	if path, found := strings.CutPrefix(o.listen, "unix:"); found {
		network, address = "unix", path
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		fmt.Fprintln(stderr, "fake runtime:", err)
		return 1
	}
	s := &server{options: o}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, s.routes()) }()
	if o.announce {
		fmt.Fprintln(stdout, "listening on", o.listen)
	}
	for {
		select {
		case err := <-failed:
			fmt.Fprintln(stderr, "fake runtime:", err)
			return 1
		case <-term:
			if !o.ignoreTerm {
				return 0
			}
			fmt.Fprintln(stdout, "fake runtime ignores SIGTERM")
		}
	}
}

// early handles flags that replace the server; -1: go on.
func (o options) early(stderr io.Writer) int {
	if o.starts != "" {
		f, err := os.OpenFile(o.starts, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Fprintln(stderr, "fake runtime:", err)
			return 1
		}
		_, _ = f.WriteString(".")
		info, err := f.Stat()
		_ = f.Close()
		if err == nil && info.Size() <= int64(o.failStarts) {
			fmt.Fprintln(stderr, "out of memory: a start that fails as told")
			return 1
		}
	}
	if o.exitCode >= 0 {
		fmt.Fprintln(stderr, "cannot load the model: exits as told")
		return o.exitCode
	}
	return -1
}
