package report

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Run is one run of a benchmark.
type Run struct {
	Small bool

	only   *regexp.Regexp
	path   string
	report *Report
	failed error // of the first report that could not be written
}

// Main is the main function of a benchmark, with -o, -only, -small and flags of package flag. It exits with status 1 if
// measure fails.
func Main(measure func(context.Context, *Run) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	path := flag.String("o", "", "`file` for the report as JSON")
	only := flag.String("only", "", "measure only the parts whose names match this `regexp`")
	small := flag.Bool("small", false, "run everything once, in seconds, with little data: it shows that the benchmark works, and measures nothing")
	_ = flag.CommandLine.Parse(os.Args[2:]) // it exits
	r := &Run{Small: *small, path: *path, report: New("go run ./e2e/bench " + strings.Join(os.Args[1:], " "))}
	r.report.Small = r.Small
	var err error
	if r.only, err = regexp.Compile(*only); err == nil {
		err = errors.Join(measure(ctx, r), r.failed)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// Selects reports whether -only chooses a part.
func (r *Run) Selects(name string) bool { return r.only.MatchString(name) }

// Add prints measurements and writes the report, so that a run that is cut off leaves what it has. [Main] reports its
// errors.
func (r *Run) Add(ms ...Measurement) {
	r.report.add(os.Stdout, ms...)
	r.failed = cmp.Or(r.failed, r.report.Finish(r.path))
}

// Note adds a note to the report; On says what device computed.
func (r *Run) Note(text string) {
	fmt.Println(text)
	r.report.Notes = append(r.report.Notes, text)
	r.Add()
}

func (r *Run) On(device any) { r.report.Device = device }

// Part is a part of a benchmark.
type Part struct {
	Name    string
	Measure func(context.Context) ([]Measurement, error)
}

// Parts measures those that -only chooses.
func (r *Run) Parts(ctx context.Context, parts ...Part) error {
	for _, p := range parts {
		if !r.Selects(p.Name) {
			continue
		}
		began := time.Now()
		ms, err := p.Measure(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", p.Name, err)
		}
		r.Add(ms...)
		fmt.Printf("  (%s took %s, load %s)\n", p.Name, time.Since(began).Round(time.Second), LoadAverage())
	}
	return nil
}
