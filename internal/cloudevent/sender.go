package cloudevent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

// MaxQueue bounds the queue of a [Sender].
const MaxQueue = 1024

// Attempts are 50 ms, then 100 ms, … apart.
const (
	attempts     = 3
	longestPause = 2 * time.Second
	tryTimeout   = 5 * time.Second
)

// SenderConfig configures a [Sender].
type SenderConfig struct {
	URL string
	// Transport defaults to [http.DefaultTransport].
	Transport http.RoundTripper
	Overrides Overrides
	// Keep retries an event until it is accepted or refused for good; otherwise it is tried three times.
	Keep bool
	// Logger gets a message when sending starts to fail, and when it works again.
	Logger *slog.Logger
}

// Sender posts events in order from a bounded queue. A full queue drops its oldest event: events are levels.
type Sender struct {
	cfg    SenderConfig
	client *http.Client
	wake   bell.Bell

	mu    sync.Mutex // guards queue
	queue []api.Event

	dropped atomic.Int64

	failing bool // the last attempt failed; owned by Run
}

// NewSender returns a sender; it sends nothing until [Sender.Run] runs.
func NewSender(cfg SenderConfig) (*Sender, error) {
	if cfg.URL == "" {
		return nil, errors.New("event sender: no URL to send to")
	}
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" {
		return nil, fmt.Errorf("event sender: %q is no URL to send to, such as http://host/path", cfg.URL)
	}
	cfg.Transport = cmp.Or(cfg.Transport, http.DefaultTransport)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Sender{cfg: cfg, client: &http.Client{Transport: cfg.Transport, Timeout: tryTimeout}, wake: bell.New()}, nil
}

// Emit queues e and returns at once. It is safe for concurrent use.
func (s *Sender) Emit(e api.Event) {
	s.mu.Lock()
	if len(s.queue) >= MaxQueue {
		s.queue = s.queue[1:]
		s.dropped.Add(1)
	}
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	s.wake.Ring()
}

// Dropped returns the number of events lost to a full queue.
func (s *Sender) Dropped() int64 { return s.dropped.Load() }

// Run sends until ctx ends, then tries the queued events once more, for at most a second. It must be called once.
func (s *Sender) Run(ctx context.Context) error {
	for {
		e, found := s.next()
		if !found {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				if e, found = s.next(); !found { // one may have come at the same moment
					return nil
				}
			}
		}
		if ctx.Err() != nil {
			s.flush(e)
			return nil
		}
		err := s.try(ctx, e)
		if err != nil && ctx.Err() != nil { // cut short by ctx: it may not have arrived
			s.flush(e)
			return nil
		}
		s.tell(err)
	}
}

func (s *Sender) tell(err error) {
	switch {
	case err != nil && !s.failing:
		s.cfg.Logger.Warn("events don't reach their receiver; requests go on", "url", s.cfg.URL, "kept", s.cfg.Keep, "error", err)
	case err == nil && s.failing:
		s.cfg.Logger.Info("events reach their receiver again", "url", s.cfg.URL)
	}
	s.failing = err != nil
}

func (s *Sender) flush(first api.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for e, found := first, true; found && ctx.Err() == nil; e, found = s.next() {
		_ = s.post(ctx, e)
	}
}

func (s *Sender) next() (api.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return api.Event{}, false
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	return e, true
}

func (s *Sender) try(ctx context.Context, e api.Event) error {
	var err error
	for i := 0; i < attempts || s.cfg.Keep; i++ {
		if i == attempts {
			s.tell(err)
		}
		if i > 0 {
			if err := bell.Sleep(ctx, min(time.Duration(50<<min(i-1, 10))*time.Millisecond, longestPause)); err != nil {
				return err
			}
		}
		err = s.post(ctx, e)
		if err == nil || errors.Is(err, errRefused) {
			break
		}
	}
	return err
}

// errRefused marks an answer that a retry would not change.
var errRefused = errors.New("refused")

func (s *Sender) post(ctx context.Context, e api.Event) error {
	req, err := NewRequest(ctx, s.cfg.URL, e, s.cfg.Overrides)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("send event %s: %w", e.Type, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
		return fmt.Errorf("send event %s: %w with %s", e.Type, errRefused, resp.Status)
	}
	return fmt.Errorf("send event %s: answered %s", e.Type, resp.Status)
}
