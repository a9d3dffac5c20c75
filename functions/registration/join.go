package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

const (
	firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	// While a pod starts, Kubernetes is about to publish its address: whoever waits for it tries often.
	earlyPause, early = 200 * time.Millisecond, 10 * time.Second
	attemptTime       = 5 * time.Second        // for one try to join
	joinsApart        = time.Second            // between two joins
	reportsApart      = 250 * time.Millisecond // between two reports that were asked for
	lostAgain         = 2 * time.Second        // until an event that was lost is made up for
	quiet             = time.Second            // before the log says what is in the way
	wordsApart        = time.Minute            // between two words in the log about the same thing
	maxAnswer         = 1 << 20
)

// Config of a [Member].
type Config struct {
	// Control is where the control plane listens.
	Control api.Endpoint
	// Request is how the instance introduces itself.
	Request control.JoinRequest
	// Token is its credential; it is sent with all that the member sends.
	Token string
	// Base carries the requests; nil: [NewTransport] with the pod's own place.
	Base http.RoundTripper
	// Report makes the instance post its status. It must not block; it may be called
	// before there is anything to report.
	Report func()
	// Told is called after each join, before the report; nil: nobody.
	Told func(control.JoinAnswer)
	// Logger; nil: none.
	Logger *slog.Logger
}

// Member is an instance's side of the control plane, see the package comment.
type Member struct {
	cfg    Config
	base   http.RoundTripper
	again  chan struct{} // from the transport: the control plane doesn't know us; one place: one word is enough
	asked  chan struct{} // from Ask; one place: one report answers all who asked
	lost   chan struct{} // from the transport: an event did not arrive; one place
	joined chan struct{} // closed by Run at the first answer
	alone  chan struct{} // closed by Run once the control plane has said that we are not its
	answer atomic.Pointer[control.JoinAnswer]

	mu     sync.Mutex // guards what follows
	reason error      // why the last try failed
}

// New makes a member; nothing is sent until [Member.Run] runs.
func New(cfg Config) (*Member, error) {
	if err := api.CheckEndpoint(cfg.Control); err != nil {
		return nil, fmt.Errorf("join: the control plane: %w; \"none\" is to join nobody", err)
	}
	if cfg.Request.Instance == "" || cfg.Request.Namespace == "" || cfg.Request.Revision == "" || cfg.Token == "" {
		return nil, errors.New("join: name the instance, its namespace and its revision (K_REVISION), and give it a token")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	base := cfg.Base
	if base == nil {
		base = NewTransport(Here().Domain)
	}
	return &Member{
		cfg: cfg, base: base, again: make(chan struct{}, 1), asked: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		joined: make(chan struct{}), alone: make(chan struct{}),
	}, nil
}

// Joined is closed at the first answer.
func (m *Member) Joined() <-chan struct{} { return m.joined }

// Alone is closed once the control plane has said that it has nothing to do with
// this revision.
func (m *Member) Alone() <-chan struct{} { return m.alone }

// Answer is the last answer, once Joined is closed; the zero one before.
func (m *Member) Answer() control.JoinAnswer {
	if a := m.answer.Load(); a != nil {
		return *a
	}
	return control.JoinAnswer{}
}

// Reason says why the last try to join failed, nil where none has.
func (m *Member) Reason() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}

// Wrong says that the control plane knows the revision and finds it wrong: an
// instance of it is of no use.
func (m *Member) Wrong() bool {
	refused, is := errors.AsType[*api.Error](m.Reason())
	return is && refused.Status == http.StatusUnprocessableEntity
}

// Ask has the instance report soon.
func (m *Member) Ask() { tell(m.asked) }

func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been told
	}
}

// Run joins, and joins again, until ctx ends.
func (m *Member) Run(ctx context.Context) {
	for first := true; ; first = false {
		began := time.Now()
		answer, err := m.join(ctx)
		if err != nil {
			if ctx.Err() == nil {
				close(m.alone)
				m.cfg.Logger.Info("this revision is not Rouse's to scale: the instance goes on alone", "reason", err)
			}
			return
		}
		m.answer.Store(&answer)
		if first {
			close(m.joined)
		}
		if m.cfg.Told != nil {
			m.cfg.Told(answer)
		}
		m.cfg.Report()
		m.cfg.Logger.Info("joined", "control", m.cfg.Control, "function", answer.Function.Name, "took", time.Since(began).Round(time.Microsecond))
		if !m.stay(ctx) || !pause(ctx, joinsApart-time.Since(began)) {
			return
		}
	}
}

// stay reports when there is reason to, until the control plane doesn't know the
// instance any more (true), or ctx ends (false).
func (m *Member) stay(ctx context.Context) bool {
	select {
	case <-m.again: // about an event from before the join
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
		case <-m.again:
			m.cfg.Logger.Info("the control plane does not know this instance any more: joining again")
			return true
		case <-m.asked:
			in(0)
		case <-m.lost:
			in(lostAgain)
		case <-timer.C:
			if !due.IsZero() {
				due, last = time.Time{}, time.Now()
				m.cfg.Report()
			}
			timer.Reset(time.Hour)
		case <-ctx.Done():
			return false
		}
	}
}

// pause says whether d has passed before the end of ctx.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// join tries until it is answered, refused for good, or ctx ends.
func (m *Member) join(ctx context.Context) (control.JoinAnswer, error) {
	began, said, last := time.Now(), time.Time{}, ""
	for wait := firstPause; ; wait *= 2 {
		answer, err := m.try(ctx)
		m.mu.Lock()
		m.reason = err
		m.mu.Unlock()
		refused, isRefusal := errors.AsType[*api.Error](err)
		switch {
		case err == nil || ctx.Err() != nil:
			return answer, err
		case isRefusal && refused.Status == http.StatusNotFound && refused.Code == api.CodeUnsupported:
			return answer, err
		}
		if advice := m.advice(err); time.Since(began) >= quiet && (advice != last || time.Since(said) >= wordsApart) {
			m.cfg.Logger.Warn("can't join; trying on", "control", m.cfg.Control, "for", time.Since(began).Round(time.Second), "error", err, "do", advice)
			said, last = time.Now(), advice
		}
		wait = min(wait, longestPause)
		if isRefusal && refused.Status == http.StatusNotFound && time.Since(began) < early {
			wait = min(wait, earlyPause)
		}
		if !pause(ctx, wait) {
			return answer, ctx.Err()
		}
	}
}

// try posts the request once. A refusal is an *[api.Error].
func (m *Member) try(ctx context.Context) (answer control.JoinAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	raw, err := json.Marshal(m.cfg.Request)
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.cfg.Control.URL(control.PathJoin), bytes.NewReader(raw))
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+m.cfg.Token)
	resp, err := m.base.RoundTrip(req)
	if err != nil {
		return answer, fmt.Errorf("join: %w", err)
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer, fmt.Errorf("join: read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return answer, refusal(resp, raw)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, fmt.Errorf("join: the answer is not what is wanted: %w", err)
	}
	return answer, nil
}

// refusal reads an error body; a body of another shape becomes the message.
func refusal(resp *http.Response, raw []byte) *api.Error {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(raw, &body); err != nil || body.Error.Message == "" {
		return api.Errorf(resp.StatusCode, "", "%s: %s", resp.Status, bytes.TrimSpace(raw[:min(len(raw), 500)]))
	}
	return api.Errorf(resp.StatusCode, body.Error.Code, "%s", body.Error.Message)
}

// advice says what to do about a failed try.
func (m *Member) advice(err error) string {
	refused, is := errors.AsType[*api.Error](err)
	if !is {
		return fmt.Sprintf("see whether the autoscaler runs (kubectl -n %s get pods -l app=%s) and whether a NetworkPolicy keeps namespace %s from it; to run without Rouse's control plane set ROUSE_CONTROL=none",
			control.SystemNamespace, control.AutoscalerName, m.cfg.Request.Namespace)
	}
	switch refused.Status {
	case http.StatusNotFound:
		return fmt.Sprintf("see whether pod %s of revision %s exists in namespace %s, and whether the revision has the annotation %s: %s; set ROUSE_NAMESPACE if the namespace is wrong",
			m.cfg.Request.Instance, m.cfg.Request.Revision, m.cfg.Request.Namespace, api.AnnotationClass, api.Class)
	case http.StatusUnprocessableEntity:
		return "mend what the error names, in a new revision (kn service update)"
	case http.StatusForbidden, http.StatusUnauthorized:
		return "the autoscaler must see the pod's own address: take proxies and address translation out of the way between them, a service mesh's sidecar for instance"
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return "the autoscaler is starting or changing its leader; this passes"
	}
	return "see the autoscaler's log (kubectl -n " + control.SystemNamespace + " logs -l app=" + control.AutoscalerName + ")"
}

// Transport carries the instance's events: it adds the token, and sees to it that
// the instance joins again, or reports again, where its events don't arrive.
func (m *Member) Transport() http.RoundTripper { return watched{m} }

type watched struct{ *Member }

// RoundTrip is the base's, with the token.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.cfg.Token)
	resp, err := w.base.RoundTrip(r)
	switch {
	case !strings.HasSuffix(r.URL.Path, control.PathEvents):
	case err != nil || resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests:
		tell(w.lost)
	default:
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
			tell(w.again)
		}
	}
	return resp, err
}
