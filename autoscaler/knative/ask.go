package knative

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// askAll asks every running pod for a report, so that existing instances are known at once.
func (f *Fleet) askAll(ctx context.Context) {
	f.mu.Lock()
	var at []api.Endpoint
	for _, p := range f.pods {
		if e := address(p.object); e != "" && !p.joined() {
			at = append(at, e)
		}
	}
	f.mu.Unlock()
	room := make(chan struct{}, 32) // at most 32 at once
	var asked sync.WaitGroup
	for _, e := range at {
		room <- struct{}{}
		asked.Go(func() {
			defer func() { <-room }()
			_, err := f.ask(ctx, e)
			if err != nil {
				f.log.Debug("a pod from before does not answer yet", "endpoint", e, "error", err)
			}
		})
	}
	asked.Wait()
}

// ask asks an instance to report, and returns the HTTP status of its answer.
func (f *Fleet) ask(ctx context.Context, e api.Endpoint) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL(control.PathReport), nil)
	if err != nil {
		return 0, err
	}
	resp, err := f.deps.Transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
