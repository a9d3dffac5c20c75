package e2e

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/internal/promtext"
)

// samples are values by name; what has several for one name are histograms, whose buckets are left out.
type samples map[string]sample

type sample struct {
	value  float64
	labels string
}

func (s samples) get(name string) float64 { return s[name].value }

func (s samples) label(name string) string { return s[name].labels }

func (f *measuredFunction) fetch(path string) []byte {
	f.t.Helper()
	resp, err := f.http.Get(f.at.URL(path))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s: %s %v", path, resp.Status, err)
	}
	return raw
}

func (f *measuredFunction) scrape() samples {
	f.t.Helper()
	found, err := promtext.Parse(bytes.NewReader(f.fetch("/metrics")))
	if err != nil {
		f.t.Fatal(err)
	}
	s := samples{}
	for name := range maps.Keys(found) {
		if !strings.HasPrefix(name, "vllm:") && !strings.HasPrefix(name, "rouse_time_") {
			continue
		}
		for _, m := range found[name].Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			switch {
			case m.Histogram != nil:
				s[name+"_count"] = sample{float64(m.Histogram.GetSampleCount()), ""}
				s[name+"_sum"] = sample{m.Histogram.GetSampleSum(), ""}
			case m.Counter != nil:
				s[name] = sample{m.Counter.GetValue(), ""}
			default:
				s[name] = sample{m.GetGauge().GetValue(), strings.Join(labels, ",")}
			}
		}
	}
	return s
}
