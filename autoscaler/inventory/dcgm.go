package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/promtext"
)

// DCGM exporter's gauges, in MiB, and their labels.
const (
	dcgmUsed     = "DCGM_FI_DEV_FB_USED"
	dcgmFree     = "DCGM_FI_DEV_FB_FREE"
	dcgmTotal    = "DCGM_FI_DEV_FB_TOTAL" // if enabled among the exporter's counters
	dcgmUUID     = "UUID"
	dcgmName     = "modelName"
	dcgmInstance = "GPU_I_ID" // on a part of a GPU (MIG), which has the UUID of the whole
)

// DCGM reads GPUs' use from DCGM exporters, one on each node.
type DCGM struct {
	// URLs are such as http://dcgm-exporter:9400/metrics.
	URLs []string
	// Transport may be nil: [http.DefaultTransport].
	Transport http.RoundTripper
	// Timeout bounds each request. Default 5 s.
	Timeout time.Duration
}

// Validate reports what is wrong with d.
func (d DCGM) Validate() error {
	for _, raw := range d.URLs {
		if u, err := url.Parse(raw); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("DCGM exporter %q: want a URL such as http://dcgm-exporter:9400/metrics", raw)
		}
	}
	return nil
}

const mostMetrics = 16 << 20

// Poll polls all exporters, at each address of a name. It returns answers together with the errors of others.
func (d DCGM) Poll(ctx context.Context) (seen []Usage, err error) {
	timeout := cmp.Or(d.Timeout, 5*time.Second)
	client := &http.Client{Transport: d.Transport, Timeout: timeout}
	var all []exporter
	for _, u := range d.URLs {
		all = append(all, exporters(ctx, u, timeout)...)
	}
	var mu sync.Mutex // guards seen and err
	var asked sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, x := range all {
		places <- struct{}{}
		asked.Go(func() {
			defer func() { <-places }()
			us, e := x.ask(ctx, client)
			mu.Lock()
			defer mu.Unlock()
			if e != nil {
				err = errors.Join(err, fmt.Errorf("DCGM exporter %s: %w", x.url, e))
			}
			seen = append(seen, us...)
		})
	}
	asked.Wait()
	return seen, err
}

const atOnce = 32

// exporter has the host name to send.
type exporter struct{ url, host string }

func exporters(ctx context.Context, raw string, timeout time.Duration) []exporter {
	one := []exporter{{url: raw}}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" { // a certificate is for one name
		return one
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err != nil || len(addresses) < 2 {
		return one // the request will report the error
	}
	host, port := u.Host, cmp.Or(u.Port(), "80")
	var all []exporter
	for _, a := range addresses {
		u.Host = net.JoinHostPort(a, port)
		all = append(all, exporter{url: u.String(), host: host})
	}
	return all
}

func (x exporter) ask(ctx context.Context, client *http.Client) ([]Usage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url, nil)
	if err != nil {
		return nil, err
	}
	req.Host = x.host
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	found, err := promtext.Parse(io.LimitReader(resp.Body, mostMetrics))
	if err != nil {
		return nil, fmt.Errorf("read its metrics: %w", err)
	}
	if found[dcgmUsed] == nil {
		return nil, fmt.Errorf("it has no %s: add that to the counters that it collects", dcgmUsed)
	}
	return dcgmUsage(found), nil
}

func dcgmUsage(found promtext.Families) []Usage {
	free, total := byUUID(found[dcgmFree]), byUUID(found[dcgmTotal])
	var seen []Usage
	for _, m := range found[dcgmUsed].Metric {
		id := promtext.Label(m, dcgmUUID)
		used, fine := mibOf(m)
		if id == "" || promtext.Label(m, dcgmInstance) != "" || !fine {
			continue
		}
		u := Usage{ID: api.DeviceID(id), Name: promtext.Label(m, dcgmName), Used: used, Total: total[id]}
		if left, known := free[id]; u.Total == 0 && known {
			u.Total = used + left
		}
		seen = append(seen, u)
	}
	return seen
}

func byUUID(f *dto.MetricFamily) map[string]api.Bytes {
	out := map[string]api.Bytes{}
	if f == nil {
		return out
	}
	for _, m := range f.Metric {
		if v, fine := mibOf(m); fine && promtext.Label(m, dcgmInstance) == "" {
			out[promtext.Label(m, dcgmUUID)] = v
		}
	}
	return out
}

func mibOf(m *dto.Metric) (api.Bytes, bool) {
	v := m.GetUntyped().GetValue()
	if m.Gauge != nil {
		v = m.Gauge.GetValue()
	}
	if !(v >= 0) || v > 1<<40 {
		return 0, false
	}
	return api.Bytes(v) * api.MiB, true
}
