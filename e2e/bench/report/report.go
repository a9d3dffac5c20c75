// Package report is the harness of benchmarks ([Main]), and the form of their results: numbers beside a baseline of the
// same run, with a gate.
//
// With -small a benchmark measures everything once, with little data and without gates. With -only REGEXP it measures
// some parts.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is the file that a run writes.
type Report struct {
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	Machine Machine   `json:"machine"`
	Small   bool      `json:"small,omitempty"`
	// Device describes where it was measured; nil: on the processor.
	Device       any           `json:"device,omitempty"`
	Notes        []string      `json:"notes,omitempty"`
	AllHeld      bool          `json:"allHeld"`
	Measurements []Measurement `json:"measurements"`
}

// Machine is where the run took place.
type Machine struct {
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	OS    string `json:"os"`
	Go    string `json:"go"`
	// The load averages say how much else it did.
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

// Measurement is one number with what is needed to judge it.
type Measurement struct {
	Name string `json:"name"`
	What string `json:"what"`
	Unit string `json:"unit"`
	// N is the rounds of each side.
	N        int      `json:"n"`
	Rouse    Summary  `json:"rouse"`
	Against  string   `json:"against,omitempty"`
	Baseline *Summary `json:"baseline,omitempty"`
	// Difference is the median of the differences of neighbouring rounds.
	Difference      float64 `json:"difference,omitempty"`
	DifferenceOfP50 float64 `json:"differenceOfP50,omitempty"`
	// Ratio is between the medians.
	Ratio float64 `json:"ratio,omitempty"`
	// Held: the gate is met; nil: there is none.
	Gate string `json:"gate,omitempty"`
	Held *bool  `json:"held,omitempty"`
	Note string `json:"note,omitempty"`
}

// Summary holds the quantiles and the minimum of a series.
type Summary struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	// P99 is of 100 values or more.
	P99 float64 `json:"p99,omitempty"`
	Min float64 `json:"min"`
}

func Summarise(series []float64) Summary {
	s := Summary{P50: Round(Quantile(series, 0.5)), P95: Round(Quantile(series, 0.95)), Min: Round(slices.Min(series))}
	if len(series) >= 100 {
		s.P99 = Round(Quantile(series, 0.99))
	}
	return s
}

// Quantile is the q-quantile of a series, interpolated.
func Quantile(series []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(series))
	at := q * float64(len(s)-1)
	low := int(at)
	high := min(low+1, len(s)-1)
	return s[low] + (s[high]-s[low])*(at-float64(low))
}

// Round keeps four decimals.
func Round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// Sized returns few if small.
func Sized[T any](small bool, whole, few T) T {
	if small {
		return few
	}
	return whole
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Of makes a measurement of a series without a baseline.
func Of(m Measurement, series ...float64) Measurement {
	m.N, m.Rouse = len(series), Summarise(series)
	return m
}

// Compare makes a measurement of two series whose neighbours belong together.
func Compare(m Measurement, rouse, baseline []float64) Measurement {
	differences := make([]float64, len(rouse))
	for i := range rouse {
		differences[i] = rouse[i] - baseline[i]
	}
	b := Summarise(baseline)
	m = Of(m, rouse...)
	m.Baseline = &b
	m.Difference = Round(Quantile(differences, 0.5))
	m.DifferenceOfP50 = Round(m.Rouse.P50 - b.P50)
	m.Ratio = Round(m.Rouse.P50 / b.P50)
	return m
}

// Gated sets the gate and whether it held.
func (m Measurement) Gated(held bool, format string, args ...any) Measurement {
	m.Gate, m.Held = fmt.Sprintf(format, args...), &held
	return m
}

// Line is a measurement for people.
func (m Measurement) Line() string {
	var b strings.Builder
	if m.N == 1 && m.Held == nil {
		fmt.Fprintf(&b, "%-60s %12.3f %s", m.Name, m.Rouse.P50, m.Unit)
		if m.Baseline != nil {
			fmt.Fprintf(&b, "; %s %.3f (%.2fx)", m.Against, m.Baseline.P50, m.Ratio)
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%-30s %9.3f %s (p95 %.3f, min %.3f, n %d)", m.Name, m.Rouse.P50, m.Unit, m.Rouse.P95, m.Rouse.Min, m.N)
	if m.Baseline != nil {
		fmt.Fprintf(&b, "; alone %.3f (p95 %.3f, min %.3f); difference %+.3f, of p50 %+.3f, ratio %.3f", m.Baseline.P50, m.Baseline.P95, m.Baseline.Min, m.Difference, m.DifferenceOfP50, m.Ratio)
	}
	if m.Held != nil {
		verdict := "HELD"
		if !*m.Held {
			verdict = "NOT HELD"
		}
		fmt.Fprintf(&b, "; gate: %s: %s", m.Gate, verdict)
	}
	return b.String()
}

// New begins a report that command makes.
func New(command string) *Report {
	return &Report{
		Command: command, At: time.Now().UTC().Truncate(time.Second),
		Machine: Machine{Cores: runtime.NumCPU(), CPU: processor(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), LoadBefore: LoadAverage()},
	}
}

func (r *Report) add(w io.Writer, ms ...Measurement) {
	for _, m := range ms {
		if r.Small {
			m.Gate, m.Held = "", nil
		}
		fmt.Fprintln(w, strings.TrimSpace(m.Line()+" "+m.Note))
		r.Measurements = append(r.Measurements, m)
	}
}

// Finish writes the report, unless path is empty. It fails where a figure is no number.
func (r *Report) Finish(path string) error {
	r.Machine.LoadAfter = LoadAverage()
	for _, m := range r.Measurements {
		if _, err := json.Marshal(m); err != nil { // which knows no infinity
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	r.AllHeld = !slices.ContainsFunc(r.Measurements, func(m Measurement) bool { return m.Held != nil && !*m.Held })
	if path == "" {
		return nil
	}
	return Write(path, r)
}

// Write writes a report of any form as indented JSON.
func Write(path string, report any) error {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(report); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, raw.Bytes(), 0o644))
}

func processor() string {
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// LoadAverage returns the averages of 1, 5 and 15 minutes.
func LoadAverage() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(raw))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
