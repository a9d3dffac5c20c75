package knative

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/activator/jobs/store"
)

func (p *process) openStore() (err error) {
	if p.cfg.Store.At == "" {
		return nil
	}
	if p.store, err = store.Open(p.cfg.Store, p.log); err != nil {
		return fmt.Errorf("ROUSE_STORE: %w", err)
	}
	return nil
}

func (p *process) closeStore() {
	if p.store == nil {
		return
	}
	if err := p.store.Close(); err != nil {
		p.log.Error("close the store", "error", err)
	}
}

func (p *process) newBatches(registry *prometheus.Registry) (err error) {
	if p.store == nil {
		return nil
	}
	limits := jobs.Config{Gather: p.cfg.Store.Gather()}
	if p.cfg.Front != nil { // models of other clusters take time to appear
		limits.Gathering = time.Minute
	}
	p.batches, err = jobs.New(limits, p.store, p.core, p.log, registry)
	return err
}

const noStore = "the Deployment rouse-activator has no ROUSE_STORE"

func (p *process) howStored() string {
	if p.store == nil {
		return noStore
	}
	return jobs.NeedsKey
}

// runBatches ends before requests are drained: its own delay nobody.
func (p *process) runBatches(ctx context.Context) {
	if p.batches != nil {
		p.batches.Run(ctx)
	}
}

func (p *process) front() http.Handler {
	if p.batches == nil {
		return jobs.Without(p.core.Handler(), p.core.OwnHost, noStore)
	}
	return p.batches.Handler(p.core.Handler())
}
