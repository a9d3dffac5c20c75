package replicas

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

const maxAnswer = 1 << 20

// Functions tells Rouse's autoscaler how many instances are wanted.
type Functions struct {
	// URL is the autoscaler's, Token returns the cluster's token.
	URL       string
	Token     func() (string, error)
	Transport http.RoundTripper
	// Lifetime is how long the autoscaler keeps the number.
	Lifetime time.Duration

	mu   sync.Mutex // guards last
	last map[api.FunctionName]int
}

// Set requests n instances, or renews that. Was is the number last set by this relay, -1 for none.
func (f *Functions) Set(ctx context.Context, name api.FunctionName, n int, dry bool) (Outcome, error) {
	if dry {
		was := f.note(name, n)
		return Outcome{Was: was, Renew: true, Changed: was != n}, nil
	}
	token, err := f.Token()
	if err != nil {
		return Outcome{}, fmt.Errorf("read the cluster's token: %w", err)
	}
	client := control.New(f.Transport, func() string { return token })
	err = client.Call(ctx, http.MethodPut, api.Endpoint(f.URL), admin.FunctionPath(name, "/scale"), admin.Scale{Replicas: n, For: f.Lifetime.String(), By: "the relay"}, nil, maxAnswer)
	if err != nil {
		return Outcome{}, fmt.Errorf("scale the function %s: %w", name, err)
	}
	return Outcome{Was: f.note(name, n), Renew: true, Changed: true}, nil
}

// note returns the previous number, -1 for none.
func (f *Functions) note(name api.FunctionName, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, found := f.last[name]
	if !found {
		was = -1
	}
	if f.last == nil || len(f.last) > mostNoted {
		f.last = make(map[api.FunctionName]int)
	}
	f.last[name] = n
	return was
}

// mostNoted bounds last: revisions come and go.
const mostNoted = 10000
