package local

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

func (s *server) newBatches(registry *prometheus.Registry) (err error) {
	if s.store == nil {
		return nil
	}
	limits := jobs.Config{Gather: s.cfg.Store.Gather()}
	if s.cfg.Clusters != nil {
		limits.Gathering = time.Minute
	}
	s.batches, err = jobs.New(limits, s.store, s.activator, s.cfg.Logger, registry)
	return err
}

const howStore = "start the server with rouse up --store DIR"

func (s *server) howStored() string {
	if s.store == nil {
		return howStore
	}
	return jobs.NeedsKey
}

// runBatches stops when the server begins to end: the next one sends the requests again.
func (s *server) runBatches(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	s.batches.Run(ctx)
	return nil
}

func (s *server) newSink() error {
	if s.cfg.Sink == "" {
		return nil
	}
	overrides, err := cloudevent.ParseOverrides(s.cfg.SinkOverrides)
	if err != nil {
		return err
	}
	if s.sink, err = cloudevent.NewSender(cloudevent.SenderConfig{URL: s.cfg.Sink, Overrides: overrides, Keep: true, Logger: s.cfg.Logger}); err != nil {
		return fmt.Errorf("K_SINK: %w", err)
	}
	s.bus.Receive(s.sink.Emit)
	return nil
}
