package promtext

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	found, err := Parse(strings.NewReader("# TYPE a gauge\na{b=\"c\"} 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := found["a"].GetMetric()[0]
	if m.GetGauge().GetValue() != 2 || Label(m, "b") != "c" || Label(m, "d") != "" {
		t.Errorf("got %v", m)
	}
}

// panics are texts on which the library's parser panics.
var panics = []string{"#TYPE a \n{}"}

func TestBadTextIsAnError(t *testing.T) {
	for _, text := range append([]string{"<html>", "a{", "a b\n", "\x00"}, panics...) {
		found, err := Parse(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), "not Prometheus text") || found != nil {
			t.Errorf("%q: got %v, %v", text, found, err)
		}
	}
}

// FuzzParse checks that nothing panics, and that there is either a result or an error.
func FuzzParse(f *testing.F) {
	for _, text := range append([]string{"# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum NaN\na_count 1\n", "{\"a b\",c=\"d\"} 1\n"}, panics...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, err := Parse(strings.NewReader(text))
		if (err == nil) != (found != nil) {
			t.Errorf("got %v, %v", found, err)
		}
		for _, family := range found {
			for _, m := range family.GetMetric() {
				_ = Label(m, "b")
			}
		}
	})
}
