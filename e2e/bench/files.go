// The benchmark files measures the cost of bringing one file to many machines. As root on Linux, machines are processes in network
// namespaces on one switch, some of which fail; the rates of their links and of the source's are limited both ways.
//
//	go run ./e2e/bench files -o docs/bench/files.json
package main

import (
	"context"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// fileOptions configures a run.
type fileOptions struct {
	reps       int
	size, rate int // MiB of the file, MiB a second that its source sends
	nodes      int // machines that fetch at once
}

func runFiles() {
	report.Main(func(ctx context.Context, r *report.Run) error {
		o := fileOptions{3, 96, 6, 8}
		if r.Small {
			o = fileOptions{1, 4, 64, 3}
		}
		return r.Parts(ctx, report.Part{Name: "apart", Measure: o.apart})
	})
}
