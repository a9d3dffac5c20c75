// Package promtext reads metrics in Prometheus' text format from programs that Rouse does not
// control: a runtime, an exporter, an external scaler. No text can end the program: the library's
// parser panics at some malformed texts, such as "#TYPE a \n{}", and Parse returns an error then.
//
// It does not check values: they may be negative, not a number or infinite. It does not bound the
// text either: its caller does. Parse is safe for concurrent use.
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
