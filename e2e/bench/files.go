// The benchmark files brings one file to many machines: as root on Linux, processes in network namespaces, some of
// which fail. The rates of links are limited.
//
//	go run ./e2e/bench files -o docs/bench/files.json
package main

import (
	"context"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

type fileOptions struct {
	reps       int
	size, rate int // MiB of the file, MiB a second that its source sends
	nodes      int // that fetch at once
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
