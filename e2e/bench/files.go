// The benchmark files measures the cost of bringing one file to many machines, and of holding it in memory there several
// times. At first, machines are caches in one process, each behind a link of its own. The rates of these links and of
// the source's are limited both ways. Then, as root on Linux, machines are processes in network namespaces on one
// switch, some of which fail. Instances are processes of the engine's CPU worker, whose model has random weights.
//
//	go run ./e2e/bench files -o docs/bench/files.json
package main

import (
	"context"
	"flag"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// options configures a run.
type fileOptions struct {
	models     string
	reps       int
	size, rate int // MiB of the file, MiB a second that its source sends
	nodes      int // caches that fetch at once
	small      bool
}

func runFiles() {
	models := flag.String("models", Models(), "folder for generated models")
	report.Main(func(ctx context.Context, r *report.Run) error {
		o := fileOptions{*models, 3, 96, 6, 8, false}
		if r.Small {
			o = fileOptions{*models, 1, 4, 64, 3, true}
		}
		part := func(name string, run func(context.Context, fileOptions, func(...report.Measurement)) error) report.Part {
			return report.Part{Name: name, Measure: func(ctx context.Context) (ms []report.Measurement, err error) {
				err = run(ctx, o, func(more ...report.Measurement) { ms = append(ms, more...) })
				return ms, err
			}}
		}
		return r.Parts(ctx, part("together", together), part("apart", apart), part("memory", memory)) // apart: in network namespaces
	})
}
