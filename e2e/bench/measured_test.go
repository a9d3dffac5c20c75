package main

import (
	"os"
	"strings"
	"testing"
)

// TestMeasured compares docs/measured.md with what the reports give, and looks for every report in it.
func TestMeasured(t *testing.T) {
	want, err := document("../../docs/bench")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/measured.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/measured.md is not what the reports in docs/bench make: make measured")
	}
	files, err := os.ReadDir("../../docs/bench")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.Contains(want, "(bench/"+f.Name()+")") {
			t.Errorf("docs/bench/%s is not in docs/measured.md", f.Name())
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0024: "0.0024", 4.9143: "4.91", 471.5773: "472", 7256.31: "7256", -0.1007: "-0.101", 0.99999: "1", 20: "20", 100: "100"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}
