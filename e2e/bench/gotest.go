// The benchmarks gateway, plan, proxy and record, and the first rows of route, run Go benchmarks:
//
//	go run ./e2e/bench gateway -o docs/bench/gateway.json
//	go run ./e2e/bench plan -o docs/bench/plan.json
//	go run ./e2e/bench proxy -o docs/bench/proxy.json
//	go run ./e2e/bench record -o docs/bench/record.json
//
// gateway: keys, limits, order and the access log; plan: decisions as a cluster grows; proxy: an open stream, and
// MLflow's envelope; record: an autoscaler's record, and its replay.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

type goBenchmark struct {
	pkg, name string // may choose sub-benchmarks: "Find/(4000|100000)"
	each      string // as -benchtime has it
	rounds    int
	small     string // its name in a small run, if another
	rows      []goRow
}

// goRow is a row of the report; of and beside are the figures, "sub-benchmark unit".
type goRow struct {
	report.Measurement
	of, beside  string
	scale, most float64 // factor to the row's unit, 0: 1; limit of the median, or of the difference, 0: none
}

func goReport(all ...goBenchmark) func(context.Context, *report.Run) error {
	return func(ctx context.Context, r *report.Run) error {
		for _, b := range all {
			ms, err := b.run(ctx, r.Small)
			if err != nil {
				return err
			}
			r.Add(ms...)
		}
		return nil
	}
}

func (b goBenchmark) run(ctx context.Context, small bool) (ms []report.Measurement, err error) {
	if small {
		b.name, b.each, b.rounds = cmp.Or(b.small, b.name), "1x", 2
	}
	pattern := "^Benchmark" + strings.ReplaceAll(b.name, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", b.each, "-count", strconv.Itoa(b.rounds), "-timeout", "30m", fmt.Sprint("-short=", small), "./"+b.pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", b.name, err, out)
	}
	figures := goFigures(string(out))
	for _, row := range b.rows {
		series := [2][]float64{figures[row.of], figures[row.beside]}
		if len(series[0]) == 0 || row.beside != "" && len(series[0]) != len(series[1]) {
			return nil, fmt.Errorf("%s prints no figures for %s:\n%s", b.name, row.Name, out)
		}
		for _, s := range series {
			for i := range s {
				s[i] *= cmp.Or(row.scale, 1)
			}
		}
		m := report.Of(row.Measurement, series[0]...)
		if row.beside != "" {
			m = report.Compare(m, series[0], series[1])
		}
		switch {
		case row.most > 0 && row.beside != "":
			m = m.Gated(m.Difference <= row.most, "at most %g %s more", row.most, m.Unit)
		case row.most > 0:
			m = m.Gated(m.Rouse.P50 <= row.most, "p50 ≤ %g %s", row.most, m.Unit)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// goFigures returns series by "sub-benchmark unit".
func goFigures(out string) map[string][]float64 {
	figures := map[string][]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		name := fields[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of processors
			name = name[:i]
		}
		_, sub, _ := strings.Cut(name, "/")
		for k := 2; k+1 < len(fields); k += 2 { // a value and its unit
			if v, err := strconv.ParseFloat(fields[k], 64); err == nil {
				key := sub + " " + fields[k+1]
				figures[key] = append(figures[key], v)
			}
		}
	}
	return figures
}

var gatewayBenchmarks = []goBenchmark{
	{pkg: "activator", name: "Gateway", each: "20000x", rounds: 12, rows: []goRow{{
		Measurement: report.Measurement{Name: "keys, limits, order, log", Unit: "µs", Against: "the same request without keys and log",
			What: "medians of rounds of 20,000 requests to an instance that answers at once, with a key that has limits and the access log"},
		of: " µs-with", beside: " µs-without", most: 15,
	}}},
	{pkg: "activator", name: "Held", small: "HeldFew", each: "1x", rounds: 1, rows: []goRow{
		{Measurement: report.Measurement{Name: "a held request", What: "what each of 100,000 requests of 1 KiB takes while it waits, beside its body and its connection", Unit: "B"}, of: " B/request", most: 16 << 10},
		{Measurement: report.Measurement{Name: "its connection", What: "what each of 100,000 idle connections takes, both ends", Unit: "B"}, of: " B/connection"},
	}},
}

var proxyBenchmarks = []goBenchmark{
	{pkg: "functions/proxy", name: "OpenStreams", each: "1x", rounds: 5, rows: []goRow{{
		Measurement: report.Measurement{Name: "memory of an open stream", Unit: "KiB",
			What: "growth of the resident memory of a process with the function's proxy by 1,000 streams that have had events and stay open, divided by their number"},
		of: " resident-KiB/stream", most: 64,
	}}},
	{pkg: "functions/pyfunc", name: "Added", each: "2000x", rounds: 12, rows: []goRow{{
		Measurement: report.Measurement{Name: "a chat in an envelope", Unit: "µs",
			What: "how much longer the p50 of 2,000 requests is with a chat body of 4 KiB in mlflow-extensions' envelope to /invocations than of the same sent plainly in turns"},
		of: " envelope-added-p50-µs", most: 60,
	}}},
}

func planBenchmark() goBenchmark {
	b := goBenchmark{pkg: "autoscaler/decide", name: "Cluster", each: "20x", rounds: 3}
	for k, s := range []struct {
		functions, nodes int
		most             float64
	}{{100, 12, 0}, {1000, 125, 5}, {10000, 1000, 50}} {
		for _, e := range [][3]string{
			{"rest", "at rest", "a plan of all functions"},
			{"wake", "wake", "the same with requests for a function that sleeps, which it wakes"},
			{"start", "start", "the same with requests for a function that is gone, which it starts"},
			{"waiting", fmt.Sprintf("%d wait", min(s.functions/10, 100)), "the same while so many functions wait for whole GPUs that others hold"},
		} {
			b.rows = append(b.rows, goRow{
				Measurement: report.Measurement{Name: fmt.Sprintf("%s, %d functions, %d nodes", e[1], s.functions, s.nodes), What: e[2], Unit: "ms"},
				of:          fmt.Sprintf("size=%d/%s ns/op", k, e[0]), scale: 1e-6, most: s.most,
			})
		}
	}
	return b
}

// recordBenchmark's loads are 16 functions of which 8 have a request every two seconds, 16 with one every second, and
// 1,000 of which 100 have one every two seconds.
func recordBenchmark() goBenchmark {
	b := goBenchmark{pkg: "autoscaler", name: "Record", each: "1000x", rounds: 1}
	for _, load := range []struct {
		name, of string
		most     float64
	}{{"16 GPUs by day", "day", 50}, {"16 GPUs, all busy", "busy", 0}, {"1,000 functions, 100 busy", "many", 0}} {
		b.rows = append(b.rows,
			goRow{Measurement: report.Measurement{Name: "bytes a day, " + load.name, What: "what the record grows by, compressed", Unit: "MB"}, of: load.of + " MB/day", most: load.most},
			goRow{Measurement: report.Measurement{Name: "time of a core, " + load.name, What: "time that recording takes, the writing included", Unit: "%"}, of: load.of + " %core", most: 1},
			goRow{Measurement: report.Measurement{Name: "replay, " + load.name, What: "time to decide it again, for each round", Unit: "µs"}, of: load.of + " µs/round"})
	}
	return b
}

var chooseBenchmarks = []goBenchmark{
	{pkg: "activator/route", name: "Find/(4000|100000)", each: "1s", rounds: 5, rows: []goRow{choose("lookup of 4000 tokens", "4000 ns/op", 1e-6, 0.005), choose("lookup of 100000 tokens", "100000 ns/op", 1e-6, 1)}},
	{pkg: "activator/route", name: "PickOf1000/(4000|16000)", each: "20000x", rounds: 5, rows: []goRow{choose("pick, 4000 tokens", "4000 p99-µs", 1e-3, 0.05), choose("pick, 16000 tokens", "16000 p99-µs", 1e-3, 0.05)}},
}

func choose(name, of string, scale, most float64) goRow {
	what := "hash a prompt and find which of 1,000 instances have seen most of it, in an index of 200,000 blocks"
	if strings.HasPrefix(name, "pick") {
		what = "p99 of picking one of 1,000 instances, half of whose slots are in use, by a hashed prompt, and noting it in the index"
	}
	return goRow{Measurement: report.Measurement{Name: name, Unit: "ms", What: what}, of: of, scale: scale, most: most}
}
