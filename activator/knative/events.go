package knative

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// A slow event delays only a lane. Events of one function stay in order.
const lanes = 4

type events struct {
	lanes  [lanes]*cloudevent.Sender
	sink   *cloudevent.Sender // nil: none
	watch  func(api.Event)    // nil: none; set before the first event
	scaled *scaled
}

func newEvents(cfg Config, autoscaler http.RoundTripper, log *slog.Logger) (*events, error) {
	e := &events{scaled: &scaled{next: autoscaler, by: map[api.FunctionName]scaling{}}}
	for i := range e.lanes {
		s, err := cloudevent.NewSender(cloudevent.SenderConfig{
			URL: strings.TrimSuffix(cfg.Autoscaler, "/") + control.PathEvents, Transport: e.scaled, Logger: log,
		})
		if err != nil {
			return nil, fmt.Errorf("ROUSE_CONTROL: %w", err)
		}
		e.lanes[i] = s
	}
	if cfg.Sink == "" {
		return e, nil
	}
	overrides, err := cloudevent.ParseOverrides(cfg.SinkOverrides)
	if err != nil {
		return nil, err
	}
	s, err := cloudevent.NewSender(cloudevent.SenderConfig{URL: cfg.Sink, Overrides: overrides, Keep: true, Transport: api.NewTransport(lanes), Logger: log})
	if err != nil {
		return nil, fmt.Errorf("K_SINK: %w", err)
	}
	e.sink = s
	return e, nil
}

// Emit queues an event. See [api.Emitter].
func (e *events) Emit(event api.Event) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(event.Subject)) // a hash's Write never fails
	e.lanes[h.Sum32()%lanes].Emit(event)
	if e.sink != nil {
		e.sink.Emit(event)
	}
	if e.watch != nil {
		e.watch(event)
	}
}

// Dropped returns the number of events lost to full queues.
func (e *events) Dropped() int64 {
	var n int64
	for _, s := range e.lanes {
		n += s.Dropped()
	}
	if e.sink != nil {
		n += e.sink.Dropped()
	}
	return n
}

func (e *events) run(ctx context.Context) error {
	var group errgroup.Group
	for _, s := range e.lanes {
		group.Go(func() error { return s.Run(ctx) })
	}
	if e.sink != nil {
		group.Go(func() error { return e.sink.Run(ctx) })
	}
	return group.Wait()
}
