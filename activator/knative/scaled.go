package knative

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// scaled remembers from the autoscaler's answers which functions an operator or a policy scaled to 0. It is safe
// for concurrent use.
type scaled struct {
	next http.RoundTripper

	mu sync.Mutex // guards by
	by map[api.FunctionName]scaling
}

type scaling struct {
	why   string
	until time.Time
}

// While requests wait there is an answer each second.
const scaledFor = 5 * time.Second

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

// Empty: it may wake.
func (s *scaled) note(name api.FunctionName, why string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(n api.FunctionName, k scaling) bool { return n == name || now.After(k.until) })
	if why != "" {
		s.by[name] = scaling{why, now.Add(scaledFor)}
	}
}

// empty: nothing known
func (s *scaled) why(name api.FunctionName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, found := s.by[name]; found && time.Now().Before(k.until) {
		return k.why
	}
	return ""
}
