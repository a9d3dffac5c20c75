package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/internal/promtext"
)

const (
	maxBody = 32 << 20
	// longestPause is between reads of a failing source.
	longestPause = 30 * time.Second
)

func read(ctx context.Context, client *http.Client, source, metric string, timeout time.Duration) ([]series, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	source = redacted(source)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	req.Header.Set("Accept", "text/plain; version=0.0.4")
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: it answers %s", source, resp.Status)
	}
	at := time.Now()
	body := &io.LimitedReader{R: resp.Body, N: maxBody + 1}
	found, err := parse(body, metric)
	switch {
	case body.N <= 0:
		return nil, fmt.Errorf("read %s: it has more than %d MiB", source, maxBody>>20)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	for k := range found {
		found[k].at = at
	}
	return found, nil
}

// redacted returns a source's address without its password.
func redacted(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return "a source" // does not occur: configurations are validated
	}
	return u.Redacted()
}

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
