// The benchmark gateway measures what sharing costs, and says whether the gates hold:
//
//		go run ./e2e/bench gateway -o docs/bench/gateway.json
//
//	 1. What keys, limits, order and the access log cost a request together.
//	 2. What each of 100,000 held requests takes beside its body and its connection.
//
// It runs the benchmarks of package activator, which can look at its queue.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func runGateway(ctx context.Context, r *report.Run) error {
	each, many, rounds := "20000x", "BenchmarkHeld", 12
	if r.Small {
		each, many, rounds = "100x", "BenchmarkHeldFew", 2
	}
	cost, err := goBenchmark(ctx, "BenchmarkGateway", each, rounds)
	if err != nil {
		return err
	}
	held, err := goBenchmark(ctx, many, "1x", 1)
	if err != nil {
		return err
	}
	with, without := cost["µs-with"], cost["µs-without"]
	if len(with) == 0 || len(with) != len(without) || len(held["B/request"]) == 0 {
		return errors.New("the benchmarks have printed no figures")
	}
	m := report.Compare(report.Measurement{
		Name: "keys, limits, order, log", What: "medians of rounds of 20,000 requests to an instance that answers at once, with a key that has limits and the access log", Unit: "µs", Against: "the same request without keys and log",
	}, with, without)
	r.Add(m.Gated(m.Difference <= 15, "at most 15 µs more"))
	request := report.Summarise(held["B/request"])
	r.Add(report.Measurement{
		Name: "a held request", What: "what each of 100,000 requests of 1 KiB takes while it waits, beside its body and its connection", Unit: "B", N: 1, Rouse: request,
	}.Gated(request.P50 <= 16<<10, "at most 16 KiB"))
	r.Add(report.Measurement{Name: "its connection", What: "what each of 100,000 idle connections takes, both ends", Unit: "B", N: 1, Rouse: report.Summarise(held["B/connection"])})
	return nil
}

// benchmark runs one benchmark of package activator some times, and returns its figures by their units.
func goBenchmark(ctx context.Context, name, each string, times int) (map[string][]float64, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+name+"$", "-benchtime", each, "-count", strconv.Itoa(times), "-timeout", "30m", "./activator")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, &out)
	}
	figures := map[string][]float64{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], name) {
			continue
		}
		for k := 2; k+1 < len(fields); k += 2 { // after the name and the number of iterations: a value and its unit
			v, err := strconv.ParseFloat(fields[k], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", lines.Text(), err)
			}
			figures[fields[k+1]] = append(figures[fields[k+1]], v)
		}
	}
	return figures, nil
}
