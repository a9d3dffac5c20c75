// Package promtext reads metrics in Prometheus' text format that somebody else wrote:
// a runtime, an exporter, a brain that scales. Nothing that is read can end the program:
// the library's parser panics at some bad texts, such as "#TYPE a \n{}", and what it
// panics with is an error here, like any other.
//
// It refuses to judge what it reads: values may be negative, not a number or infinite.
// It bounds nothing either; whoever opens the text does. Parse is safe for many
// goroutines.
package promtext

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families are metrics by name.
type Families = map[string]*dto.MetricFamily

// Parse reads a text to its end. It blocks as r does. The families are nil with an error.
func Parse(r io.Reader) (found Families, err error) {
	defer func() {
		if p := recover(); p != nil {
			found, err = nil, fmt.Errorf("it is not Prometheus text: the parser fails: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if found, err = parser.TextToMetricFamilies(r); err != nil {
		return nil, fmt.Errorf("it is not Prometheus text: %w", err)
	}
	return found, nil
}

// Label is the value of a metric's label; empty: it has none of that name.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
