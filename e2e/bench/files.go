// The benchmark files measures the cost of bringing one file to many machines, and of holding it in memory there several
// times. As root on Linux, machines are processes in network namespaces on one switch, some of which fail; the rates of
// their links and of the source's are limited both ways. Instances are processes of the engine's CPU worker, whose model has
// random weights.
//
//	go run ./e2e/bench files -o docs/bench/files.json
package main

import (
	"context"
	"flag"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// fileOptions configures a run.
type fileOptions struct {
	models     string
	reps       int
	size, rate int // MiB of the file, MiB a second that its source sends
	nodes      int // machines that fetch at once
	small      bool
}

func runFiles() {
	models := flag.String("models", Models(), "folder for generated models")
	report.Main(func(ctx context.Context, r *report.Run) error {
		o := fileOptions{*models, 3, 96, 6, 8, false}
		if r.Small {
			o = fileOptions{*models, 1, 4, 64, 3, true}
		}
		return r.Parts(ctx, report.Part{Name: "apart", Measure: o.apart}, report.Part{Name: "memory", Measure: o.memory})
	})
}
