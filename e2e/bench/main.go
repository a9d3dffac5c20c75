package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/functionstest"
)

const fakeRuntime = "fake-runtime"

var programs = map[string]func(){
	"local":         runLocal,
	"cluster":       runCluster,
	"conversations": runConversations,
	"engine":        runEngine,
	"files":         runFiles,
	"gateway":       func() { report.Main(goReport(gatewayBenchmarks...)) },
	"gpu":           runGPU,
	"measured":      writeMeasured,
	"plan":          func() { report.Main(goReport(planBenchmark())) },
	"proxy":         func() { report.Main(goReport(proxyBenchmarks...)) },
	"record":        func() { report.Main(goReport(recordBenchmark())) },
	"route":         runRoute,
	"simulate":      func() { report.Main(runSimulate) },
	fakeRuntime:     func() { os.Exit(functionstest.Main(os.Args[2:], os.Stdout, os.Stderr)) },
	reverseProxy:    func() { exit(serveReverseProxy(os.Args[2:])) },
	machineProgram:  func() { exit(machine(context.Background(), os.Args[2:])) },
}

func main() {
	if len(os.Args) > 1 {
		if program, found := programs[os.Args[1]]; found {
			program()
			return
		}
	}
	exit(fmt.Errorf("the first argument is to be one of %s", strings.Join(slices.Sorted(maps.Keys(programs)), ", ")))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", strings.Join(os.Args[:min(2, len(os.Args))], " "), err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runLocal() {
	rouse := flag.String("rouse", "", "`program` to measure (default: built from this module)")
	function := flag.String("function", "", "`program` of the function to measure (default: built from this module)")
	effort := flag.Float64("effort", 1, "`factor` for the number of rounds")
	report.Main(func(ctx context.Context, r *report.Run) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "rb")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		b := &localBench{rouse: *rouse, function: *function, self: self, dir: dir, effort: *effort, small: r.Small}
		for name, path := range map[string]*string{"rouse": &b.rouse, "rouse-function": &b.function} {
			if *path == "" {
				*path = filepath.Join(dir, name+".bin") // local mode makes a folder named rouse there
				if err := Build(ctx, *path, "cmd/"+name); err != nil {
					return err
				}
			}
		}
		return r.Parts(ctx, b.parts()...)
	})
}

type localBench struct {
	rouse, function string  // under test
	self            string  // this program
	dir             string  // for sockets and manifests; short, a socket's path has 107 bytes
	effort          float64 // scales the number of rounds
	small           bool    // everything once
}

func (b *localBench) rounds(n int) int {
	if b.small {
		return 2
	}
	return max(2, int(float64(n)*b.effort))
}

func (b *localBench) while(d time.Duration) time.Duration { return report.Sized(b.small, d, d/20) }

func (b *localBench) parts() []report.Part {
	return []report.Part{
		{Name: "asleep", Measure: b.asleep},
		{Name: "gone", Measure: b.gone},
		{Name: "warm-beside", Measure: b.warmBeside},
		{Name: "warm-engine", Measure: b.warmEngine},
		{Name: "up", Measure: b.up},
		{Name: "idle", Measure: b.idle},
		{Name: "wake-one", Measure: b.wakeOne},
		{Name: "wake-crowd", Measure: b.wakeCrowd},
		{Name: "door", Measure: b.door},
		{Name: "function-hop", Measure: b.functionHop},
		{Name: "function-idle", Measure: b.functionIdle},
	}
}
