// Package promtext parses metrics in Prometheus' text format from programs outside Rouse's control: a runtime, an
// exporter, an external scaler. The library's parser panics on some malformed texts, such as "#TYPE a \n{}"; Parse
// returns an error instead.
//
// It does not check values: they may be negative, NaN or infinite. It does not bound the text; its caller must. Parse
// is safe for concurrent use.
package promtext

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families maps names to metrics.
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

// Label returns the value of a metric's label; empty: it has no such label.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
