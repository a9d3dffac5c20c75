package functions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

const (
	firstJoinPause, longestJoinPause = 50 * time.Millisecond, 2 * time.Second
	// While a pod starts, Kubernetes is about to publish its address.
	earlyJoinPause, earlyJoin = 200 * time.Millisecond, 10 * time.Second
	joinTime                  = 5 * time.Second
	joinsApart                = time.Second            // between two joins
	reportsApart              = 250 * time.Millisecond // between two reports that were asked for
	lostAgain                 = 2 * time.Second        // until a lost event is made up for
	joinQuiet                 = time.Second            // before the log says what stands in the way
	joinWordsApart            = time.Minute            // between two log lines about the same thing
	maxJoinAnswer             = 1 << 20
)

type registrarConfig struct {
	Control api.Endpoint
	Request control.RegisterRequest
	Token   string
	// ProofFile's content changes; it may be missing.
	ProofFile string
	Base      http.RoundTripper
	// Report must not block, and may be called before there is anything to report.
	Report func()
	// Told is called after each join, before the report.
	Told   func(control.RegisterAnswer)
	Logger *slog.Logger
}

// registrar registers an instance at a cluster's control plane, and keeps it registered. Run is called once; all other methods are safe
// for many goroutines and don't block.
//
//  1. Run posts a [control.RegisterRequest] until it is answered, and logs what stands in the way.
//  2. The first answer closes Joined. The instance posts its events through Transport.
//  3. If an event is answered 401, 403, 404 or 410, the control plane has forgotten the instance, which joins again.
//  4. The instance reports after Ask, and when the control plane can be reached again.
//
// If another autoscaler manages the revision (404 with the code unsupported), the instance is Alone.
type registrar struct {
	cfg    registrarConfig
	base   http.RoundTripper
	again  bell.Bell     // from the transport: the control plane doesn't know us
	asked  bell.Bell     // from Ask: one report answers all calls
	lost   bell.Bell     // from the transport: an event did not arrive
	joined chan struct{} // closed by Run at the first answer
	alone  chan struct{} // closed by Run
	answer atomic.Pointer[control.RegisterAnswer]

	mu     sync.Mutex // guards reason
	reason error
}

func newRegistrar(cfg registrarConfig) (*registrar, error) {
	if err := api.CheckEndpoint(cfg.Control); err != nil {
		return nil, fmt.Errorf("join: the control plane: %w; \"none\" is to join nobody", err)
	}
	if cfg.Request.Instance == "" || cfg.Request.Namespace == "" || cfg.Request.Revision == "" || cfg.Token == "" {
		return nil, errors.New("join: name the instance, its namespace and its revision (K_REVISION), and give it a token")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	base := cfg.Base
	if base == nil {
		base = newServiceTransport(ThisPod().Domain)
	}
	return &registrar{
		cfg: cfg, base: base, again: bell.New(), asked: bell.New(), lost: bell.New(),
		joined: make(chan struct{}), alone: make(chan struct{}),
	}, nil
}

func (a *registrar) Joined() <-chan struct{} { return a.joined }

func (a *registrar) Alone() <-chan struct{} { return a.alone }

// Answer returns the zero answer before Joined is closed.
func (a *registrar) Answer() control.RegisterAnswer {
	if answer := a.answer.Load(); answer != nil {
		return *answer
	}
	return control.RegisterAnswer{}
}

func (a *registrar) Reason() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

// Wrong reports whether the control plane has found the revision invalid.
func (a *registrar) Wrong() bool {
	refused, is := errors.AsType[*api.Error](a.Reason())
	return is && refused.Status == http.StatusUnprocessableEntity
}

func (a *registrar) Ask() { a.asked.Ring() }

// Run joins, and joins again when forgotten, until ctx ends or it is [registrar.Alone].
func (a *registrar) Run(ctx context.Context) {
	for first := true; ; first = false {
		began := time.Now()
		answer, err := a.join(ctx)
		if err != nil {
			if ctx.Err() == nil {
				close(a.alone)
				a.cfg.Logger.Info("another autoscaler manages this revision: running without a control plane", "reason", err)
			}
			return
		}
		a.answer.Store(&answer)
		if first {
			close(a.joined)
		}
		if a.cfg.Told != nil {
			a.cfg.Told(answer)
		}
		a.cfg.Report()
		a.cfg.Logger.Info("joined", "control", a.cfg.Control, "function", answer.Function.Name, "took", time.Since(began).Round(time.Microsecond))
		if !a.stay(ctx) || bell.Sleep(ctx, joinsApart-time.Since(began)) != nil {
			return
		}
	}
}

// stay returns true if the control plane has forgotten the instance, false when ctx ends.
func (a *registrar) stay(ctx context.Context) bool {
	select {
	case <-a.again: // from before the join
	default:
	}
	var due time.Time // of the next report; zero: none
	last := time.Now()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	in := func(d time.Duration) {
		at := time.Now().Add(d)
		if earliest := last.Add(reportsApart); at.Before(earliest) {
			at = earliest
		}
		if due.IsZero() || at.Before(due) {
			due = at
			timer.Reset(time.Until(due))
		}
	}
	for {
		select {
		case <-a.again:
			a.cfg.Logger.Info("control plane no longer knows this instance: joining again")
			return true
		case <-a.asked:
			in(0)
		case <-a.lost:
			in(lostAgain)
		case <-timer.C:
			if !due.IsZero() {
				due, last = time.Time{}, time.Now()
				a.cfg.Report()
			}
			timer.Reset(time.Hour)
		case <-ctx.Done():
			return false
		}
	}
}

func (a *registrar) join(ctx context.Context) (control.RegisterAnswer, error) {
	began, said, last := time.Now(), time.Time{}, ""
	for wait := firstJoinPause; ; wait *= 2 {
		answer, err := a.try(ctx)
		a.mu.Lock()
		a.reason = err
		a.mu.Unlock()
		refused, isRefusal := errors.AsType[*api.Error](err)
		switch {
		case err == nil || ctx.Err() != nil:
			return answer, err
		case isRefusal && refused.Status == http.StatusNotFound && refused.Code == api.CodeUnsupported:
			return answer, err
		}
		if advice := a.advice(err); time.Since(began) >= joinQuiet && (advice != last || time.Since(said) >= joinWordsApart) {
			a.cfg.Logger.Warn("joining the control plane failed: retrying", "control", a.cfg.Control, "for", time.Since(began).Round(time.Second), "error", err, "do", advice)
			said, last = time.Now(), advice
		}
		wait = min(wait, longestJoinPause)
		if isRefusal && refused.Status == http.StatusNotFound && time.Since(began) < earlyJoin {
			wait = min(wait, earlyJoinPause)
		}
		if bell.Sleep(ctx, wait) != nil {
			return answer, ctx.Err()
		}
	}
}

// try posts the request once. A refusal is an *[api.Error].
func (a *registrar) try(ctx context.Context) (answer control.RegisterAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	request := a.cfg.Request
	proof, _ := os.ReadFile(a.cfg.ProofFile) // without one the pod joins once Kubernetes has published its address
	request.Proof = string(proof)
	raw, err := json.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.Control.URL(control.PathRegister), bytes.NewReader(raw))
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.cfg.Token)
	resp, err := a.base.RoundTrip(req)
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(resp.Body, maxJoinAnswer))
	if err != nil {
		return answer, fmt.Errorf("join: read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return answer, api.ParseError(resp, raw)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, fmt.Errorf("join: unexpected answer: %w", err)
	}
	return answer, nil
}

func (a *registrar) advice(err error) string {
	refused, is := errors.AsType[*api.Error](err)
	if !is {
		return fmt.Sprintf("see whether the autoscaler runs (kubectl -n %s get pods -l app=%s) and whether a NetworkPolicy keeps namespace %s from it; to run without Rouse's control plane set ROUSE_CONTROL=none",
			control.SystemNamespace, control.AutoscalerName, a.cfg.Request.Namespace)
	}
	switch refused.Status {
	case http.StatusNotFound:
		return fmt.Sprintf("see whether pod %s of revision %s exists in namespace %s, and whether the revision has the annotation autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev; set ROUSE_NAMESPACE if the namespace is wrong",
			a.cfg.Request.Instance, a.cfg.Request.Revision, a.cfg.Request.Namespace)
	case http.StatusUnprocessableEntity:
		return "mend what the error names, in a new revision (kn service update)"
	case http.StatusForbidden, http.StatusUnauthorized:
		return "the autoscaler must see the pod's own address: take proxies and address translation out of the way between them, a service mesh's sidecar for instance"
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return "the autoscaler is starting or changing its leader; this passes"
	}
	return "see the autoscaler's log (kubectl -n " + control.SystemNamespace + " logs -l app=" + control.AutoscalerName + ")"
}

// Transport returns the transport for the instance's events. It adds the token.
func (a *registrar) Transport() http.RoundTripper { return watchedTransport{a} }

type watchedTransport struct{ *registrar }

func (w watchedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.cfg.Token)
	resp, err := w.base.RoundTrip(r)
	switch {
	case !strings.HasSuffix(r.URL.Path, control.PathEvents):
	case err != nil || resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests:
		w.lost.Ring()
	default:
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
			w.again.Ring()
		}
	}
	return resp, err
}
