package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/jobs"
	activator "github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inject"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/knative"
	"github.com/rouse-dev/rouse/autoscaler/leader"
	"github.com/rouse-dev/rouse/autoscaler/replicas"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	engine "github.com/rouse-dev/rouse/engine/serve"
	function "github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// part is a set of metrics that are created together.
type part struct {
	heading, about string
	register       func(prometheus.Registerer) error
}

// parts are all that make metrics, in the order of the page.
var parts = []part{
	{"The front door", "Of `rouse up` and `rouse-activator`.", func(r prometheus.Registerer) error {
		_, err := activator.New(r, func() int64 { return 0 })
		return cmp.Or(err, r.Register(local.CertificateEnd(&peertls.Files{})))
	}},
	{"Files, batches and later answers", "Of `rouse up --store` and `rouse-activator`, where it has a store.", jobs.DescribeMetrics},
	{"Clusters behind one front door", "Of `rouse up --clusters` and `rouse-activator`, where it has clusters.", door.DescribeMetrics},
	{"The autoscaler", "Of `rouse up` and `rouse-autoscaler`.", func(r prometheus.Registerer) error {
		cfg := autoscaler.Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: api.GiB}}}
		_, err := autoscaler.New(cfg, nil, nil, slog.New(slog.DiscardHandler), r)
		return err
	}},
	{"The autoscaler in a cluster", "Of `rouse-autoscaler`.", func(r prometheus.Registerer) error {
		if err := leader.DescribeMetrics(r); err != nil {
			return err
		}
		return knative.DescribeMetrics(r)
	}},
	{"The injector", "Of `rouse-autoscaler inject`.", inject.DescribeMetrics},
	{"The relay", "Of `rouse-autoscaler relay`.", replicas.DescribeMetrics},
	{"An instance", "Of `rouse-function` and `rouse function`, at the instance's own port. What a runtime does not say, and Rouse can't count, is not there.", func(r prometheus.Registerer) error {
		cfg := function.Config{Model: "MODEL", Status: func() api.InstanceStatus { return api.InstanceStatus{State: api.Awake} }, Signals: saysAll}
		m, err := function.New(cfg)
		if err != nil {
			return err
		}
		return m.Register(r)
	}},
	{"The engine", "Of `rouse engine serve`, at its own port.", engine.DescribeMetrics},
}

// saysAll is a runtime that says all that one can say.
func saysAll(context.Context) (runtime.Signals, error) {
	s := runtime.Signals{BlockTokens: 16, Blocks: 1, Capacity: 16, MaxAdapters: 1, Times: map[string]runtime.Histogram{}}
	for _, name := range []string{
		runtime.FirstToken, runtime.PerOutputToken, runtime.InterToken, runtime.PerRequestToken, runtime.PerPrefillToken,
		runtime.WholeRequest, runtime.QueueTime, runtime.InferenceTime, runtime.PrefillTime, runtime.DecodeTime,
	} {
		s.Times[name] = runtime.Histogram{}
	}
	return s, nil
}

// metric is one of a part.
type metric struct{ name, kind, help, labels string }

// unit returns the unit of the metric's values, from its name, or for tokens from its help.
func (m metric) unit() string {
	for _, u := range []struct{ sign, unit string }{
		{"seconds", "seconds"}, {"bytes", "bytes"}, {"tokens", "tokens"}, {"perc", "share, 0 to 1"}, {"share", "share, 0 to 1"}, {"ratio", "ratio"},
	} {
		if strings.Contains(m.name, u.sign) {
			return u.unit
		}
	}
	if strings.HasPrefix(m.help, "Tokens ") {
		return "tokens"
	}
	return ""
}

// listing is a registry that keeps the collectors.
type listing struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// Register is part of [prometheus.Registerer].
func (l *listing) Register(c prometheus.Collector) error {
	l.all = append(l.all, c)
	return nil
}

// MustRegister is part of [prometheus.Registerer].
func (l *listing) MustRegister(all ...prometheus.Collector) { l.all = append(l.all, all...) }

// metricsOf lists the metrics of a part, by name.
func metricsOf(p part) ([]metric, error) {
	var l listing
	if err := p.register(&l); err != nil {
		return nil, fmt.Errorf("metrics of %q: %w", p.heading, err)
	}
	seen := map[string]bool{}
	var all []metric
	for _, c := range l.all {
		found, err := described(c)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if !seen[m.name] {
				seen[m.name], all = true, append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// form matches the text of a description.
var form = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// described lists the metrics of a collector. Their type is
//
//  1. the collector's, if it is a vector;
//  2. else the type of the metric that it collects now;
//  3. else, if it collects none now, a counter if the name ends as a counter's does, and a gauge if not.
func described(c prometheus.Collector) ([]metric, error) {
	var kind string // 1.
	var kinds map[string]string
	switch c.(type) {
	case *prometheus.CounterVec:
		kind = "counter"
	case *prometheus.GaugeVec:
		kind = "gauge"
	case *prometheus.HistogramVec:
		kind = "histogram"
	default:
		kinds = collected(c)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	var all []metric
	var err error
	for d := range descriptions { // to its end, so that the goroutine ends
		text := form.FindStringSubmatch(d.String())
		if text == nil {
			err = fmt.Errorf("%s: not understood", d)
			continue
		}
		m := metric{labels: labels(text[3], text[4]), kind: cmp.Or(kind, kinds[d.String()])} // 1., 2.
		m.name, _ = strconv.Unquote(text[1])                                                 // the form is a quoted text
		m.help, _ = strconv.Unquote(text[2])
		if m.kind == "" { // 3.
			m.kind = "gauge"
			if strings.HasSuffix(m.name, "_total") {
				m.kind = "counter"
			}
		}
		all = append(all, m)
	}
	return all, err
}

// collected has the types of what a collector collects now.
func collected(c prometheus.Collector) map[string]string {
	kinds := map[string]string{}
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		c.Collect(metrics)
	}()
	for m := range metrics {
		var written dto.Metric
		if m.Write(&written) != nil {
			continue
		}
		kind := "gauge"
		switch {
		case written.Counter != nil:
			kind = "counter"
		case written.Histogram != nil:
			kind = "histogram"
		}
		kinds[m.Desc().String()] = kind
	}
	return kinds
}

// labels are the names of constant and of variable labels.
func labels(constant, variable string) string {
	var names []string
	for _, pair := range strings.Split(constant, `",`) {
		if name, _, is := strings.Cut(pair, "="); is {
			names = append(names, name)
		}
	}
	if variable != "" {
		names = append(names, strings.Split(variable, ",")...)
	}
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// metricsPage is all metrics of all programs.
func metricsPage() (string, error) {
	var text strings.Builder
	text.WriteString("# Metrics\n\nWhat the programs answer at `GET /metrics`, in Prometheus's text format. This page is made from the programs by `make keys`.\n\n" +
		"Who may read them: at the front door, callers on the same machine where clients need no keys, trusted peers and bearers of the administrator's token ([scraping one machine](machine.md#metrics)); in a cluster each program has a port of its own for them,\n" +
		"`metrics`, which the component [monitoring](../manifests/components/monitoring) reads; an instance and the engine answer at their own port, which is closed to clients.\n\n" +
		"`rouse-activator`, `rouse-autoscaler` and the engine add those of the Go runtime and of the process (`go_…`, `process_…`). Knative's own, which the stock parts of\n" +
		"`rouse-activator` count, are in Knative's documentation. A series is there once there was something to count, unless an alert waits for it.\n")
	for _, p := range parts {
		all, err := metricsOf(p)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| metric | type | labels | unit | |\n|---|---|---|---|---|\n", p.heading, p.about)
		for _, m := range all {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, m.labels, m.unit(), m.help)
		}
	}
	return text.String(), nil
}
