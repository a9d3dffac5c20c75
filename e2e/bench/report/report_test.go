package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoNumber wants the row named that has a figure that is no number, whatever it is of, and nothing written.
func TestNoNumber(t *testing.T) {
	for _, m := range []Measurement{
		{Name: "a", Rouse: Summarise([]float64{math.NaN()})},
		Compare(Measurement{Name: "a"}, []float64{1}, []float64{math.Inf(1)}),
		Compare(Measurement{Name: "a"}, []float64{1}, []float64{0}),
		Compare(Measurement{Name: "a"}, []float64{0}, []float64{0}),
	} {
		path := filepath.Join(t.TempDir(), "r.json")
		r := New("test")
		r.add(&bytes.Buffer{}, m)
		err := r.Finish(path)
		if err == nil || !strings.HasPrefix(err.Error(), "a: ") {
			t.Errorf("%+v: %v: want the row named", m, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%+v: a report was written", m)
		}
	}
}

// TestSmall wants a small run to judge nothing, and to say that it is no measurement.
func TestSmall(t *testing.T) {
	m := Compare(Measurement{Name: "a"}, []float64{3}, []float64{1}).Gated(false, "at most twice")
	for _, small := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "r.json")
		var said bytes.Buffer
		r := New("test")
		r.Small = small
		r.add(&said, m)
		if err := r.Finish(path); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got Report
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if got.Small != small || got.AllHeld != small || (got.Measurements[0].Held == nil) != small || strings.Contains(said.String(), "NOT HELD") == small {
			t.Errorf("small %t: %+v, %s", small, got, &said)
		}
	}
}

func TestRound(t *testing.T) {
	for v, want := range map[float64]float64{1.23456: 1.2346, -1.23456: -1.2346, 0: 0} {
		if got := Round(v); got != want {
			t.Errorf("Round(%g) is %g, want %g", v, got, want)
		}
	}
}
