// Command files measures what it costs to bring one file to many machines, and what it costs to have it in memory there
// several times. Machines are caches in one process, each behind a link of its own whose rate is bounded both ways, as that of
// the file's source is; then, as root on Linux, processes in network namespaces on one switch, some of which fail. Instances are
// processes of the engine's CPU worker, whose model has random weights.
//
//	go run ./e2e/bench/files -o docs/bench/files.json
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	models     string
	reps       int
	size, rate int // MiB, MiB a second
	nodes      int
	small      bool
}

func run(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	if os.Getenv(machineEnv) != "" {
		return machine(ctx, os.Args[2:])
	}
	var o options
	out := flag.String("o", "", "file for the results")
	flag.StringVar(&o.models, "models", filepath.Join(cache, "rouse", "bench-models"), "folder for generated models")
	flag.IntVar(&o.reps, "reps", 3, "repetitions")
	flag.IntVar(&o.size, "size", 96, "MiB of the file that is fetched")
	flag.IntVar(&o.rate, "rate", 6, "MiB a second that the source sends")
	flag.IntVar(&o.nodes, "nodes", 8, "caches that fetch at once")
	small := report.SmallFlag(flag.CommandLine)
	only := flag.String("only", "", "the part to run: together, apart (in network namespaces) or memory; empty: all")
	held := flag.String("hold", "", "be an instance that holds this model")
	flag.Parse()
	if *held != "" {
		return hold(*held, o.models)
	}
	if o.small = *small; o.small {
		o.reps, o.size, o.rate, o.nodes = 1, 4, 64, 3
	}
	r := report.New("go run ./e2e/bench/files " + strings.Join(os.Args[1:], " "))
	r.Small = o.small
	add := func(m report.Measurement) { r.Add(os.Stdout, m) }
	for _, part := range []struct {
		name string
		run  func(context.Context, options, func(report.Measurement)) error
	}{{"together", together}, {"apart", apart}, {"memory", memory}} {
		if *only != "" && *only != part.name {
			continue
		}
		if err := part.run(ctx, o, add); err != nil {
			return err
		}
		if err := r.Finish(*out); err != nil { // a run that is cut off leaves what it has
			return err
		}
	}
	return nil
}
