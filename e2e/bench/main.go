package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/functionstest"
)

// fakeRuntime as the first argument makes this program a model server that does nothing.
const fakeRuntime = "fake-runtime"

func main() {
	if len(os.Args) > 1 && os.Args[1] == fakeRuntime {
		os.Exit(functionstest.Main(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == reverseProxy {
		fmt.Fprintln(os.Stderr, "bench:", serveReverseProxy(os.Args[2]))
		os.Exit(1)
	}
	if len(os.Args) > 3 && os.Args[1] == crowdProgram {
		if err := runCrowd(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	rouse, function string  // the programs under test
	self            string  // this program
	dir             string  // for sockets and manifests; short, a socket's path has 107 bytes
	effort          float64 // scales the number of rounds
	small           bool    // everything once
}

// rounds scales a number of rounds.
func (b *bench) rounds(n int) int {
	if b.small {
		return 2
	}
	return max(2, int(float64(n)*b.effort))
}

// times is how many times something is done within a round.
func (b *bench) times(n int) int { return report.Sized(b.small, n, 2) }

// while is how long something goes on.
func (b *bench) while(d time.Duration) time.Duration { return report.Sized(b.small, d, d/20) }

// suites are the measurements, in order.
var suites = []struct {
	name string
	run  func(*bench, context.Context) ([]report.Measurement, error)
}{
	{"asleep", (*bench).asleep},
	{"gone", (*bench).gone},
	{"warm-beside", (*bench).warmBeside},
	{"warm-engine", (*bench).warmEngine},
	{"up", (*bench).up},
	{"idle", (*bench).idle},
	{"wake-one", (*bench).wakeOne},
	{"wake-crowd", (*bench).wakeCrowd},
	{"hostile", (*bench).hostileBodies},
	{"door", (*bench).door},
	{"function-hop", (*bench).functionHop},
	{"function-stream", (*bench).functionStream},
	{"function-envelope", (*bench).functionEnvelope},
	{"function-idle", (*bench).functionIdle},
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	out := flags.String("o", "", "`file` for the report as JSON")
	only := flags.String("only", "", "measure only what matches this `regexp`")
	rouse := flags.String("rouse", "", "`program` to measure (default: built from this module)")
	function := flags.String("function", "", "`program` of the function to measure (default: built from this module)")
	small := report.SmallFlag(flags)
	effort := flags.Float64("effort", 1, "`factor` for the number of rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{rouse: *rouse, function: *function, self: self, dir: dir, effort: *effort, small: *small}
	for name, path := range map[string]*string{"rouse": &b.rouse, "rouse-function": &b.function} {
		if *path == "" {
			if *path, err = build(ctx, dir, name); err != nil {
				return err
			}
		}
	}
	r := report.New("go run ./e2e/bench " + strings.Join(args, " "))
	r.Small = b.small
	for _, s := range suites {
		if !selected.MatchString(s.name) {
			continue
		}
		began := time.Now()
		ms, err := s.run(b, ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		r.Add(stdout, ms...)
		fmt.Fprintf(stdout, "  (%s took %s, load %s)\n", s.name, time.Since(began).Round(time.Second), report.LoadAverage())
	}
	return r.Finish(*out)
}

// build makes a program under test.
func build(ctx context.Context, dir, name string) (string, error) {
	path := filepath.Join(dir, name+".bin") // local mode makes a folder named rouse there
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/rouse-dev/rouse/cmd/"+name)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build the program under test: %w", err), errors.New(string(output)))
	}
	return path, nil
}
