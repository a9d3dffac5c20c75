package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// Device is where the parts ran; a processor has no name, driver and memory.
type Device struct {
	Name       string `json:"name,omitempty"`
	Driver     string `json:"driver,omitempty"`
	Capability string `json:"capability,omitempty"`
	// in bytes; Free before anything ran
	Total    int64  `json:"total,omitempty"`
	Free     int64  `json:"free,omitempty"`
	HostFree int64  `json:"hostFree,omitempty"`
	Torch    string `json:"torch,omitempty"`
	Python   string `json:"python,omitempty"`
	CUDA     string `json:"cuda,omitempty"`
	Triton   string `json:"triton,omitempty"`
	VLLM     string `json:"vllm,omitempty"`
	LMCache  string `json:"lmcache,omitempty"`
	HasCUDA  bool   `json:"hasCuda"`
	// Unpinned says why memory of the host can't be pinned.
	Unpinned string `json:"unpinned,omitempty"`
	// NoCUDA says why there is no device.
	NoCUDA string `json:"noCuda,omitempty"`
	// in bytes a second; a copy on the device counts reads and writes
	Rates struct {
		Device         float64 `json:"device,omitempty"`
		ToDevice       float64 `json:"toDevice,omitempty"` // from memory that is not pinned
		ToDevicePinned float64 `json:"toDevicePinned,omitempty"`
		ToHost         float64 `json:"toHost,omitempty"`
		ToHostPinned   float64 `json:"toHostPinned,omitempty"`
	} `json:"rates"`
}

type gpuPart struct {
	name, what string
	row        func(...report.Measurement)
	say        func(note string)
	faults     []error // of what failed while the rest went on
}

func (p *gpuPart) add(name, unit string, value float64) { p.beside(name, unit, value, 0, "") }

// beside adds a row with a limit or a value to compare with; of says which.
func (p *gpuPart) beside(name, unit string, value, limit float64, of string) {
	m := report.Measurement{Name: p.name + ": " + name, What: p.what, Unit: unit, Against: of}
	switch {
	case of == "" || math.IsInf(limit, 0) || math.IsNaN(limit): // its rate could not be measured
		m.Against = ""
		m = report.Of(m, value)
	case limit == 0:
		m.Against, m.Note = "", of+" 0"
		m = report.Of(m, value)
	default:
		m = report.Compare(m, []float64{value}, []float64{limit})
	}
	p.row(m)
}

func (p *gpuPart) note(format string, args ...any) {
	p.say(p.name + ": " + fmt.Sprintf(format, args...))
}

// missing is the requirement of a part that is skipped.
type missing struct{ what string }

func (m missing) Error() string { return m.what }

func lacks(format string, args ...any) error { return missing{fmt.Sprintf(format, args...)} }

// goOn records an error, or returns it if the run is at its end.
func (p *gpuPart) goOn(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if m, is := errors.AsType[missing](err); is {
		p.note("left out: %s", m.what)
		return nil
	}
	p.faults = append(p.faults, err)
	fmt.Println("failed, and the rest goes on: " + strings.ReplaceAll(err.Error(), "\n", "\n    "))
	return nil
}

// end returns a part's errors. One that lacks something is none.
func (p *gpuPart) end(err error) error {
	if m, is := errors.AsType[missing](err); is && len(p.faults) == 0 {
		p.note("skipped: %s", m.what)
		return nil
	}
	if err = errors.Join(append(p.faults, err)...); err != nil {
		p.note("failed: %v", err)
		err = fmt.Errorf("%s: %w", p.name, err)
	}
	return err
}
