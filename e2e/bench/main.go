package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/child"
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
	rouse := flag.String("rouse", "", "`program` to measure (default: built from this module)")
	function := flag.String("function", "", "`program` of the function to measure (default: built from this module)")
	effort := flag.Float64("effort", 1, "`factor` for the number of rounds")
	report.Main("./e2e/bench", func(ctx context.Context, r *report.Run) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "rb")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b := &bench{rouse: *rouse, function: *function, self: self, dir: dir, effort: *effort, small: r.Small}
		for name, path := range map[string]*string{"rouse": &b.rouse, "rouse-function": &b.function} {
			if *path == "" {
				*path = filepath.Join(dir, name+".bin") // local mode makes a folder named rouse there
				if err := child.Build(ctx, *path, "cmd/"+name); err != nil {
					return err
				}
			}
		}
		return r.Parts(ctx, b.parts()...)
	})
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

// parts are the measurements, in order.
func (b *bench) parts() []report.Part {
	return []report.Part{
		{Name: "asleep", Measure: b.asleep},
		{Name: "gone", Measure: b.gone},
		{Name: "warm-beside", Measure: b.warmBeside},
		{Name: "warm-engine", Measure: b.warmEngine},
		{Name: "up", Measure: b.up},
		{Name: "idle", Measure: b.idle},
		{Name: "wake-one", Measure: b.wakeOne},
		{Name: "wake-crowd", Measure: b.wakeCrowd},
		{Name: "hostile", Measure: b.hostileBodies},
		{Name: "door", Measure: b.door},
		{Name: "function-hop", Measure: b.functionHop},
		{Name: "function-stream", Measure: b.functionStream},
		{Name: "function-envelope", Measure: b.functionEnvelope},
		{Name: "function-idle", Measure: b.functionIdle},
	}
}
