package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Report is the file that a run writes.
type gpuReport struct {
	// Command makes the report, from the root of the module.
	Command string         `json:"command"`
	At      time.Time      `json:"at"`
	Machine report.Machine `json:"machine"`
	Device  Device         `json:"device"`
	// Small says that it is no measurement of a GPU: the same code ran on the processor, with little data.
	Small bool `json:"small"`
	// Notes say what of the machine a reader has to know: others on the device, memory that can't be pinned.
	Notes []string  `json:"notes,omitempty"`
	Parts []gpuPart `json:"parts"`
}

// Device is the device that computed, and its software. A processor has no name, driver and memory.
type Device struct {
	Name       string `json:"name,omitempty"`
	Driver     string `json:"driver,omitempty"`
	Capability string `json:"capability,omitempty"`
	// Total and Free are bytes on the device, Free before anything ran.
	Total int64 `json:"total,omitempty"`
	Free  int64 `json:"free,omitempty"`
	// HostFree is bytes.
	HostFree int64  `json:"hostFree,omitempty"`
	Torch    string `json:"torch,omitempty"`
	Python   string `json:"python,omitempty"`
	CUDA     string `json:"cuda,omitempty"`
	Triton   string `json:"triton,omitempty"`
	VLLM     string `json:"vllm,omitempty"`
	LMCache  string `json:"lmcache,omitempty"`
	HasCUDA  bool   `json:"hasCuda"`
	// Unpinned says why memory of the host can't be pinned; "" if it can.
	Unpinned string `json:"unpinned,omitempty"`
	// NoCUDA says why there is no device, as torch has it.
	NoCUDA string `json:"noCuda,omitempty"`
	// Rates are bytes a second: the limits that the parts are compared with.
	Rates Rates `json:"rates"`
}

// Rates are bytes a second of copies, measured by this run. A copy on the device counts both reads and writes.
type Rates struct {
	Device         float64 `json:"device,omitempty"`
	ToDevice       float64 `json:"toDevice,omitempty"` // from memory that is not pinned
	ToDevicePinned float64 `json:"toDevicePinned,omitempty"`
	ToHost         float64 `json:"toHost,omitempty"`
	ToHostPinned   float64 `json:"toHostPinned,omitempty"`
}

// Status is the result of a part.
type Status string

// Statuses.
const (
	Ran     Status = "ran"
	Skipped Status = "skipped" // Why says what is missing
	Failed  Status = "failed"  // Why is the error
)

// Part is one thing that the run shows.
type gpuPart struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Status  Status   `json:"status"`
	Why     string   `json:"why,omitempty"`
	Seconds float64  `json:"seconds"`
	Figures []Figure `json:"figures,omitempty"`
	// Notes list omissions of the part, and facts that a reader must know.
	Notes []string `json:"notes,omitempty"`

	faults []string // of what failed while the rest went on
}

// Figure is one number.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	// Limit is an upper bound or a value to compare with, in the same unit. Of says which; empty: there is none.
	Limit float64 `json:"limit,omitempty"`
	Of    string  `json:"of,omitempty"`
}

func (p *gpuPart) add(name, unit string, value float64) {
	p.beside(name, unit, value, 0, "")
}

// beside adds a figure with its limit.
func (p *gpuPart) beside(name, unit string, value, limit float64, of string) {
	if math.IsInf(limit, 0) || math.IsNaN(limit) { // its rate could not be measured
		limit, of = 0, ""
	}
	f := Figure{Name: name, Unit: unit, Value: report.Round(value), Limit: report.Round(limit), Of: of}
	p.Figures = append(p.Figures, f)
	fmt.Println("  " + f.line())
}

func (p *gpuPart) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
	fmt.Println("  " + p.Notes[len(p.Notes)-1])
}

func (f Figure) line() string {
	line := fmt.Sprintf("%-60s %12.3f %s", f.Name, f.Value, f.Unit)
	if f.Of == "" {
		return line
	}
	line += fmt.Sprintf("; %s %.3f", f.Of, f.Limit)
	if f.Limit != 0 {
		line += fmt.Sprintf(" (%.2fx)", f.Value/f.Limit)
	}
	return line
}

// missing is an error for a requirement that a part lacks: the part is skipped.
type missing struct{ what string }

func (m missing) Error() string { return m.what }

func lacks(format string, args ...any) error { return missing{fmt.Sprintf(format, args...)} }

// goOn takes in that something failed, and lets the rest of the part go on: nil. It returns the error where nothing can: the run is
// at its end.
func (p *gpuPart) goOn(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	var m missing
	if errors.As(err, &m) {
		p.note("left out: %s", m.what)
		return nil
	}
	p.faults = append(p.faults, err.Error())
	fmt.Println("  failed, and the rest goes on: " + strings.ReplaceAll(err.Error(), "\n", "\n    "))
	return nil
}

// end sets the result of a part.
func (p *gpuPart) end(began time.Time, err error) {
	p.Seconds = report.Round(time.Since(began).Seconds())
	if len(p.faults) > 0 {
		if err != nil {
			p.faults = append(p.faults, err.Error())
		}
		err = errors.New(strings.Join(p.faults, "\n"))
	}
	var m missing
	switch {
	case err == nil && len(p.Figures) == 0 && len(p.Notes) > 0: // all of it was left out
		p.Status, p.Why = Skipped, strings.Join(p.Notes, "; ")
	case err == nil:
		p.Status = Ran
	case errors.As(err, &m):
		p.Status, p.Why = Skipped, m.what
	default:
		p.Status, p.Why = Failed, err.Error()
	}
	line := "  " + string(p.Status)
	if p.Why != "" {
		line += ": " + strings.ReplaceAll(p.Why, "\n", "\n    ")
	}
	fmt.Printf("%s (%.1f s)\n", line, p.Seconds)
}

// write writes the file. A run that is cut off keeps the finished parts.
func (r *gpuReport) write(path string) error {
	r.Machine.LoadAfter = report.LoadAverage()
	return report.Write(path, r)
}
