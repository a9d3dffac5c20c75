package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/internal/promtext"
)

const (
	// maxBody bounds what is read of a source.
	maxBody = 32 << 20
	// longestPause is how seldom a source that fails is asked.
	longestPause = 30 * time.Second
)

// read reads the metric's series of a source.
func read(ctx context.Context, client *http.Client, url, metric string, timeout time.Duration) ([]series, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	req.Header.Set("Accept", "text/plain; version=0.0.4")
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: it answers %s", url, resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body, N: maxBody + 1}
	found, err := parse(body, metric)
	switch {
	case body.N <= 0:
		return nil, fmt.Errorf("read %s: it has more than %d MiB", url, maxBody>>20)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return found, nil
}

// parse finds a metric in Prometheus text.
func parse(body io.Reader, metric string) ([]series, error) {
	found, err := promtext.Parse(body)
	if err != nil {
		return nil, err
	}
	family := found[metric]
	if family == nil {
		return nil, nil
	}
	var out []series
	for _, m := range family.GetMetric() {
		s := series{labels: make(map[string]string, len(m.GetLabel()))}
		for _, l := range m.GetLabel() {
			s.labels[l.GetName()] = l.GetValue()
		}
		switch family.GetType() {
		case dto.MetricType_GAUGE:
			s.value = m.GetGauge().GetValue()
		case dto.MetricType_UNTYPED:
			s.value = m.GetUntyped().GetValue()
		case dto.MetricType_COUNTER:
			s.value = m.GetCounter().GetValue()
		default:
			return nil, errors.New("the metric " + metric + " is a " + family.GetType().String() + ", want a gauge")
		}
		out = append(out, s)
	}
	return out, nil
}
