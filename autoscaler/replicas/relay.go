package replicas

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Setter sets scales. It is safe for concurrent use.
type Setter interface {
	// Set makes a target have n replicas. It writes only if needed, and never with dry.
	Set(ctx context.Context, t Target, n int, dry bool) (Outcome, error)
}

// Outcome is the result of a Set.
type Outcome struct {
	// Was is the previous number, -1 if unknown.
	Was int
	// Changed: something was written, or in a dry run would have been.
	Changed bool
	// Renew: the number is forgotten after [Config.Lifetime].
	Renew bool
	// What was written, if not the target itself.
	What string
}

const (
	setTimeout  = 10 * time.Second // of one Set
	longestSet  = 30 * time.Second // between two tries of one that fails
	forgetAfter = 10 * time.Minute // a target without series
)

// Deps are a [Relay]'s dependencies.
type Deps struct {
	Client *http.Client
	Setter Setter
	Log    *slog.Logger
	// Registry gets the metrics; may be nil.
	Registry *prometheus.Registry
}

// Relay is made by [New].
type Relay struct {
	cfg          Config
	deps         Deps
	staleTargets prometheus.Gauge
	limit        *rate.Limiter

	readings chan reading // from the sources' goroutines; unbuffered; never closed
	set      chan done    // from writers to the owner; unbuffered; never closed

	// Run owns all below.
	sources map[string]*reading // the last one of each
	targets map[Target]*state
	errs    map[string]bool // errors of series that were logged
	writers int
}

type reading struct {
	source string
	series []series
	err    error
	at     time.Time
}

type done struct {
	target  Target
	n       int
	outcome Outcome
	err     error
}

type state struct {
	want     int
	known    bool      // want was ever known
	seen     time.Time // when a fresh series last gave it
	has      int       // as last set
	settled  bool      // has was set and nothing failed since
	busy     bool
	look     time.Time // when it is next checked although nothing changed
	failures int
	fault    string // as last logged
	stale    bool   // that was logged
}

// New returns a relay and starts nothing.
func New(cfg Config, deps Deps) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &Relay{
		cfg: cfg, deps: deps, staleTargets: newStaleGauge(), limit: rate.NewLimiter(rate.Limit(cfg.Rate), max(1, int(cfg.Rate))),
		readings: make(chan reading), set: make(chan done),
		sources: make(map[string]*reading), targets: make(map[Target]*state), errs: make(map[string]bool),
	}
	if deps.Registry != nil {
		deps.Registry.MustRegister(r.staleTargets)
	}
	return r, nil
}

// Run relays until ctx ends and returns nil, when its goroutines have ended. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	readers := len(r.cfg.Sources)
	stopped := make(chan struct{}) // sent to by each reader at its end; unbuffered
	for _, url := range r.cfg.Sources {
		go func() {
			r.follow(ctx, url)
			stopped <- struct{}{}
		}()
	}
	timer := time.NewTimer(r.cfg.Interval)
	defer timer.Stop()
	for readers > 0 || r.writers > 0 {
		select {
		case got := <-r.readings:
			r.take(got)
			r.settle(ctx)
		case d := <-r.set:
			r.writers--
			r.finish(ctx, d)
			r.settle(ctx)
		case <-timer.C:
			r.settle(ctx)
			timer.Reset(r.cfg.Interval)
		case <-stopped:
			readers--
		}
	}
	return nil
}

func (r *Relay) follow(ctx context.Context, url string) {
	for failures := 0; ; {
		found, err := read(ctx, r.deps.Client, url, r.cfg.Metric, r.cfg.Timeout)
		if ctx.Err() != nil {
			return
		}
		if failures++; err == nil {
			failures = 0
		}
		select {
		case r.readings <- reading{url, found, err, time.Now()}:
		case <-ctx.Done():
			return
		}
		pause := r.cfg.Interval
		if failures > 0 {
			pause = max(pause, min(longestPause, pause<<min(failures, 10)))
		}
		pause += time.Duration((rand.Float64() - 0.5) / 5 * float64(pause)) // not secret
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// take stores a reading. It logs once when a source begins or stops failing.
func (r *Relay) take(got reading) {
	last := r.sources[got.source]
	failed := last != nil && last.err != nil
	switch {
	case got.err != nil:
		if !failed {
			r.deps.Log.Warn("a source can't be read: nothing is changed by it until it can", "source", redacted(got.source), "error", got.err)
		}
		if last != nil {
			got.series, got.at = last.series, last.at
		}
	case failed:
		r.deps.Log.Info("a source can be read again", "source", redacted(got.source), "series", len(got.series))
	}
	r.sources[got.source] = &got
	r.want()
}

func (r *Relay) staleAfter() time.Duration { return 3*r.cfg.Interval + r.cfg.Timeout }

// want counts a reading until it is stale, even if its source can't be read now: else the number would fall.
func (r *Relay) want() {
	now := time.Now()
	var all []series
	for _, url := range r.cfg.Sources {
		if s := r.sources[url]; s != nil && now.Sub(s.at) <= r.staleAfter() {
			all = append(all, s.series...)
		}
	}
	wishes, errs := r.cfg.wishes(all)
	for _, err := range errs {
		if said := err.Error(); !r.errs[said] && len(r.errs) < most {
			r.errs[said] = true
			r.deps.Log.Warn("a series has no target", "error", err)
		}
	}
	for t, w := range wishes {
		s := r.targets[t]
		if s == nil {
			s = &state{}
			r.targets[t] = s
		}
		if !w.known {
			continue
		}
		if s.stale {
			s.stale = false
			r.deps.Log.Info("a target's series is back", "target", t, "replicas", w.replicas)
		}
		s.want, s.known, s.seen = w.replicas, true, w.at
	}
	maps.DeleteFunc(r.targets, func(t Target, s *state) bool {
		_, there := wishes[t]
		return !there && !s.known
	})
}

func (r *Relay) settle(ctx context.Context) {
	now := time.Now()
	stale := 0
	for _, t := range r.order() {
		s := r.targets[t]
		switch age := now.Sub(s.seen); {
		case !s.known:
			stale++
			r.sayStale(t, s, "its series is no number of replicas")
			continue
		case age > r.staleAfter():
			stale++
			r.sayStale(t, s, "its series is gone, or can't be read")
			if age > forgetAfter && !s.busy {
				delete(r.targets, t)
			}
			continue
		}
		changed := !s.settled || s.has != s.want
		due := !s.look.After(now)
		if s.busy || ctx.Err() != nil || !due && (!changed || s.failures > 0) {
			continue
		}
		s.busy = true
		r.writers++
		go r.write(ctx, t, s.want)
	}
	r.staleTargets.Set(float64(stale))
}

func (r *Relay) order() []Target {
	return slices.SortedFunc(maps.Keys(r.targets), func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (r *Relay) sayStale(t Target, s *state, why string) {
	if !s.stale {
		s.stale = true
		r.deps.Log.Warn("a target is left as it is: "+why, "target", t)
	}
}

func (r *Relay) write(ctx context.Context, t Target, n int) {
	err := r.limit.Wait(ctx)
	var o Outcome
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, setTimeout)
		o, err = r.deps.Setter.Set(bounded, t, n, r.cfg.DryRun)
		cancel()
	}
	r.set <- done{t, n, o, err}
}

func (r *Relay) finish(ctx context.Context, d done) {
	s := r.targets[d.target]
	s.busy = false
	now := time.Now()
	if d.err != nil {
		if ctx.Err() != nil {
			return
		}
		s.failures++
		s.settled = false
		s.look = now.Add(min(longestSet, r.cfg.Interval<<min(s.failures, 10)))
		if said := d.err.Error(); said != s.fault {
			s.fault = said
			r.deps.Log.Warn("a target can't be scaled", "target", d.target, "replicas", d.n, "error", d.err)
		}
		return
	}
	drifted := s.settled && s.has == d.n && d.outcome.Changed && !d.outcome.Renew
	s.has, s.settled, s.failures, s.fault = d.n, true, 0, ""
	s.look = now.Add(r.cfg.Resync)
	if d.outcome.Renew {
		s.look = now.Add(min(r.cfg.Resync, r.cfg.Lifetime/3))
	}
	if !d.outcome.Changed || d.outcome.Was == d.n { // the latter is only renewed
		return
	}
	attrs := []any{"target", d.target, "from", d.outcome.Was, "to", d.n}
	if d.outcome.What != "" {
		attrs = append(attrs, "what", d.outcome.What)
	}
	for name, on := range map[string]bool{"drift": drifted, "dry": r.cfg.DryRun} {
		if on {
			attrs = append(attrs, name, true)
		}
	}
	r.deps.Log.Info("scaled", attrs...)
}
