package knative

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/demand"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// scaled keeps which functions somebody has set to 0, as the autoscaler's answers to events say, which it passes on. It
// is safe for many goroutines.
type scaled struct {
	next http.RoundTripper

	mu sync.Mutex // guards by
	by map[api.FunctionName]scaling
}

// scaling is who keeps a function at 0, and until when that is believed.
type scaling struct {
	who   string
	until time.Time
}

// scaledFor is how long an answer counts: while requests wait there is one every [demand.Repeat].
const scaledFor = 5 * demand.Repeat

func newScaled(next http.RoundTripper) *scaled {
	return &scaled{next: next, by: make(map[api.FunctionName]scaling)}
}

// RoundTrip implements [http.RoundTripper].
func (s *scaled) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if name := api.FunctionName(resp.Header.Get(control.HeaderFunction)); name != "" {
		s.note(name, resp.Header.Get(control.HeaderScaled), time.Now())
	}
	return resp, nil
}

// note takes in an answer; who is empty where nobody keeps the function at 0.
func (s *scaled) note(name api.FunctionName, who string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(n api.FunctionName, k scaling) bool { return n == name || now.After(k.until) })
	if who != "" {
		s.by[name] = scaling{who, now.Add(scaledFor)}
	}
}

// why says what keeps a function from waking, empty if nobody has said.
func (s *scaled) why(name api.FunctionName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, found := s.by[name]; found && time.Now().Before(k.until) {
		return k.who
	}
	return ""
}
