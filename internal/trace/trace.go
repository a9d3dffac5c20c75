// Package trace exports the outlines of wakes as OpenTelemetry traces, by OTLP over
// HTTP in its JSON form, which every OTLP/HTTP receiver takes at the path that it has
// for the binary one (OpenTelemetry Protocol 1.x, "OTLP/HTTP").
//
// It does nothing unless it is told where to: [FromEnvironment] reads the variables
// that OpenTelemetry has for this, and returns a nil [Exporter], which takes spans and
// forgets them, where there is no endpoint. It is no SDK: a wake is known only once it
// is over, its IDs are given by the record (package api), and there are a few
// each minute, so that all that is left is to write them down. The SDK and its exporter
// would make each of our programs larger by several MB, and slower to start.
//
// The life of a wake in here:
//
//  1. Each part says, after the fact, which spans it had ([Exporter.Outline]). This
//     never blocks: what does not fit into the queue is dropped, and counted.
//  2. [Exporter.Run] collects for a moment, and posts.
//  3. A receiver that can't take it now is asked again a few times, then it is dropped.
//     The log says so, once a minute at most.
//
// An Exporter is safe for many goroutines.
package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const (
	queue      = 256                    // groups of spans that wait
	together   = 200 * time.Millisecond // for more to come
	attempts   = 4
	firstPause = 250 * time.Millisecond // before the second attempt; doubles
	farewell   = 2 * time.Second        // for the last post
	saidAgain  = time.Minute
)

// Exporter exports spans. Nil: to nobody.
type Exporter struct {
	cfg     config
	http    *http.Client
	log     *slog.Logger
	queue   chan group // from whoever has spans, to Run; who finds it full drops them; never closed
	dropped atomic.Int64
	said    time.Time // when the log was last told of a failure; Run's own
}

// group is the spans of one part.
type group struct {
	part  api.Part
	spans []span
}

// Outline exports the spans of o that are of one of the parts, and the span that is the
// whole, if it is one's: the activator's where there is one, else the autoscaler's.
func (e *Exporter) Outline(o api.Outline, parts ...api.Part) {
	if e == nil || o.Unsampled || !api.ValidTrace(o.Trace) {
		return
	}
	for _, p := range parts {
		g := group{part: p}
		if root(o) == p {
			g.spans = append(g.spans, whole(o))
		}
		for _, s := range o.Spans {
			if s.Part == p {
				g.spans = append(g.spans, within(o, s))
			}
		}
		if len(g.spans) == 0 {
			continue
		}
		select {
		case e.queue <- g:
		default:
			e.dropped.Add(int64(len(g.spans)))
		}
	}
}

// root is the part that has the span that is the whole.
func root(o api.Outline) api.Part {
	if o.Activator != "" {
		return api.PartActivator
	}
	return api.PartAutoscaler
}

// Dropped is the number of spans that were lost.
func (e *Exporter) Dropped() int64 {
	if e == nil {
		return 0
	}
	return e.dropped.Load()
}

// Run exports until ctx ends, and then what has come until then. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	if e == nil {
		<-ctx.Done()
		return nil
	}
	defer e.http.CloseIdleConnections()
	for {
		select {
		case g := <-e.queue:
			e.post(ctx, e.collect(ctx, g))
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
			if rest := e.rest(nil); len(rest) > 0 {
				e.post(last, rest)
			}
			return nil
		}
	}
}

// collect waits a moment for what belongs to the first.
func (e *Exporter) collect(ctx context.Context, first group) []group {
	timer := time.NewTimer(together)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return e.rest([]group{first})
}

// rest adds what waits.
func (e *Exporter) rest(all []group) []group {
	for len(all) < queue {
		select {
		case g := <-e.queue:
			all = append(all, g)
		default:
			return all
		}
	}
	return all
}

// post sends spans, again where the receiver says that it may.
func (e *Exporter) post(ctx context.Context, groups []group) {
	if ctx.Err() != nil { // the last word of Run
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
	}
	raw, err := json.Marshal(e.payload(groups))
	pause := firstPause
	for n := 1; err == nil; n++ {
		var again bool
		if again, err = e.send(ctx, raw); err == nil {
			return
		}
		if !again || n == attempts {
			break
		}
		select {
		case <-time.After(pause):
			pause *= 2
			err = nil
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	for _, g := range groups {
		e.dropped.Add(int64(len(g.spans)))
	}
	if now := time.Now(); now.Sub(e.said) >= saidAgain {
		e.said = now
		e.log.Warn("traces can't be exported", "to", e.cfg.shown, "error", err, "spans lost", e.dropped.Load(),
			"do", "see whether an OTLP receiver listens there over HTTP (port 4318 as a rule), or take OTEL_EXPORTER_OTLP_ENDPOINT out of the environment")
	}
}

// maxRefusal is what is read of a refusal.
const maxRefusal = 500

// send posts once. again says that another attempt may succeed.
func (e *Exporter) send(ctx context.Context, raw []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.endpoint, bytes.NewReader(raw))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range e.cfg.headers {
		req.Header.Set(k, v)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	retryable := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	return slices.Contains(retryable, resp.StatusCode), fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(answer))
}
