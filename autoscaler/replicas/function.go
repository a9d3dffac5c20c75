package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// maxAnswer bounds an answer's size.
const maxAnswer = 1 << 20

// Functions tells Rouse's autoscaler how many instances of a function are wanted, through its administrative API.
type Functions struct {
	// URL is the autoscaler's, Token returns the cluster's token.
	URL    string
	Token  func() (string, error)
	Client *http.Client
	// Lifetime is how long the autoscaler keeps the number.
	Lifetime time.Duration

	mu   sync.Mutex // guards last
	last map[api.FunctionName]int
}

// Set requests n instances of a function for Lifetime. Each call renews that. Was is the number last set by this relay,
// -1 for none.
func (f *Functions) Set(ctx context.Context, name api.FunctionName, n int, dry bool) (Outcome, error) {
	if dry {
		was := f.note(name, n)
		return Outcome{Was: was, Renew: true, Changed: was != n}, nil
	}
	body, err := json.Marshal(admin.Scale{Replicas: n, For: f.Lifetime.String(), By: "the relay"})
	if err != nil {
		return Outcome{}, err
	}
	if err := f.call(ctx, http.MethodPut, admin.FunctionPath(name, "/scale"), bytes.NewReader(body)); err != nil {
		return Outcome{}, fmt.Errorf("scale the function %s: %w", name, err)
	}
	return Outcome{Was: f.note(name, n), Renew: true, Changed: true}, nil
}

// note stores n and returns the previous number, -1 for none.
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

func (f *Functions) call(ctx context.Context, method, path string, body io.Reader) error {
	token, err := f.Token()
	if err != nil {
		return fmt.Errorf("read the cluster's token: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(f.URL, "/")+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := f.Client.Do(req)
	if err != nil {
		return fmt.Errorf("reach Rouse's autoscaler: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the autoscaler's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var failed struct {
			Error struct{ Message string } `json:"error"`
		}
		if json.Unmarshal(raw, &failed) == nil && failed.Error.Message != "" {
			return errors.New(failed.Error.Message)
		}
		return fmt.Errorf("the autoscaler answers %s", resp.Status)
	}
	return nil
}
