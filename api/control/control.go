// Package control is the control plane's client for an instance, and the paths that clients never reach. Calls are
// safe for concurrent use, end with their context and carry its trace ([api.WithTrace]). A refusal is an
// *[api.Error].
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths of an instance and of the event receiver.
const (
	PathState = "/rouse/v1/state" // GET: InstanceStatus
	PathWake  = "/rouse/v1/wake"  // POST Grant: blocks until awake, InstanceStatus
	PathSleep = "/rouse/v1/sleep" // POST SleepRequest: blocks until asleep, InstanceStatus
	PathFence = "/rouse/v1/fence" // POST FenceRequest: refuses older orders from now on, InstanceStatus
	// PathAdapters: PUT AdaptersRequest: blocks until they are loaded, InstanceStatus
	PathAdapters = "/rouse/v1/adapters"

	PathStop   = "/rouse/v1/stop"   // POST StopRequest: drains, answers, then the process ends
	PathLogs   = "/rouse/v1/logs"   // GET ?tail=N&follow=true: the runtime's output, text lines
	PathEvents = "/rouse/v1/events" // POST CloudEvent, to the autoscaler's side
)

// HeaderRefused has the code of an instance that did not pass the request to its runtime: it may be sent elsewhere.
const HeaderRefused = "X-Rouse-Refused"

// HeaderFailed means that the runtime failed before it answered: the holder of the request may retry. Ollama's
// errors have no codes.
const HeaderFailed = "X-Rouse-Failed"

// HeaderWait is on a request right behind the call that wakes the instance, which holds it, or the answer, for at
// most [MostWait]. Only the activator sets it.
const HeaderWait = "X-Rouse-Wait"

// In the autoscaler's answer to a demand: the function, and who scaled it to 0 and until when.
const (
	HeaderFunction = "X-Rouse-Function"
	HeaderScaled   = "X-Rouse-Scaled"
)

// MostWait bounds [HeaderWait].
const MostWait = 10 * time.Second

// DemandTTL is how long an [api.Demand] counts after it was heard; activators repeat it each second.
const DemandTTL = 15 * time.Second

// SleepRequest puts an instance to sleep.
type SleepRequest struct {
	Level api.Level `json:"level"`
	// The instance's new lower bound for grants.
	Epoch uint64 `json:"epoch"`
	// For running requests; 0 means no bound.
	Drain time.Duration `json:"drain"`
	// Requests end at once if all can continue elsewhere.
	Move bool `json:"move,omitempty"`
}

// FenceRequest raises an instance's lower bound for orders and grants.
type FenceRequest struct {
	Epoch uint64 `json:"epoch"`
}

// AdaptersRequest has all adapters that a function declares.
type AdaptersRequest struct {
	Adapters []api.Adapter `json:"adapters"`
}

// StopRequest ends an instance.
type StopRequest struct {
	// For running requests; 0 ends them at once.
	Drain time.Duration `json:"drain"`
	// As in [SleepRequest].
	Move bool `json:"move,omitempty"`
}

// Client calls instances.
type Client struct {
	http  *http.Client
	token func(api.Endpoint) string
}

// New returns a client. transport must reach endpoints, as [api.NewTransport]'s. token, if not nil, returns the bearer
// token of each request.
func New(transport http.RoundTripper, token func() string) *Client {
	if token == nil {
		return NewFor(transport, nil)
	}
	return NewFor(transport, func(api.Endpoint) string { return token() })
}

// NewFor is [New] with a token for each instance; an empty one is not sent.
func NewFor(transport http.RoundTripper, token func(api.Endpoint) string) *Client {
	// An instance must not redirect its caller elsewhere.
	return &Client{&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, token}
}

// State returns an instance's status.
func (c *Client) State(ctx context.Context, e api.Endpoint) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodGet, e, PathState, nil)
}

// Wake wakes an instance. It returns once the instance has generated a token; one that is awake succeeds at once.
func (c *Client) Wake(ctx context.Context, e api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathWake, g)
}

// Sleep drains an instance and puts it to sleep, or deepens its sleep. It returns once it sleeps; one that sleeps at
// that level succeeds at once.
func (c *Client) Sleep(ctx context.Context, e api.Endpoint, r SleepRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathSleep, r)
}

// Fence invalidates orders and grants below an epoch. An instance that sleeps in the returned status does so until
// a later order.
func (c *Client) Fence(ctx context.Context, e api.Endpoint, r FenceRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathFence, r)
}

// Adapters sends the adapters that a function declares: new ones are loaded, at the next wake if it sleeps, others
// unloaded. A status of 501: only at the runtime's start; another error: one cannot be loaded.
func (c *Client) Adapters(ctx context.Context, e api.Endpoint, r AdaptersRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPut, e, PathAdapters, r)
}

// Stop drains an instance and ends it. It returns once the runtime has ended.
func (c *Client) Stop(ctx context.Context, e api.Endpoint, r StopRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathStop, r)
}

// Logs returns the last tail lines of the runtime's output and, with follow, later ones until ctx ends. The caller
// closes it.
func (c *Client) Logs(ctx context.Context, e api.Endpoint, tail int, follow bool) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, e, fmt.Sprintf("%s?tail=%d&follow=%t", PathLogs, tail, follow), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (c *Client) call(ctx context.Context, method string, e api.Endpoint, path string, in any) (api.InstanceStatus, error) {
	var s api.InstanceStatus
	err := c.Call(ctx, method, e, path, in, &s, maxStatus)
	return s, err
}

// Call sends in as JSON, if not nil, and decodes the answer, of at most most bytes, into out, if not nil.
func (c *Client) Call(ctx context.Context, method string, e api.Endpoint, path string, in, out any, most int64) error {
	resp, err := c.send(ctx, method, e, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := io.LimitReader(resp.Body, most)
	if out != nil {
		if err := json.NewDecoder(answer).Decode(out); err != nil {
			return fmt.Errorf("%s %s: read the answer, at most %d bytes: %w", method, path, most, err)
		}
	}
	_, _ = io.Copy(io.Discard, answer) // so that the connection is reused
	return nil
}

// An instance is not trusted.
const maxStatus = 1 << 20

func (c *Client) send(ctx context.Context, method string, e api.Endpoint, path string, in any) (*http.Response, error) {
	raw, bad := json.Marshal(in)
	if in == nil {
		raw = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, e.URL(path), bytes.NewReader(raw))
	if err = errors.Join(bad, err); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if trace := api.TraceOf(ctx); !trace.Zero() {
		req.Header[api.HeaderTrace] = []string{trace.String()}
	}
	if c.token != nil {
		if token := c.token(e); token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", e, api.Unreached(err))
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, api.ParseError(resp, raw)
	}
	return resp, nil
}
