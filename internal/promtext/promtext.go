// Package promtext parses metrics in Prometheus' text format from programs outside Rouse's control. The library's parser
// panics on some malformed texts, such as "#TYPE a \n{}". Values may be negative, NaN or infinite.
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

// Parse reads a text to its end. Its caller must bound it.
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

// Label returns the value of a metric's label; empty: it has none.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
