// Package control is the control plane's client for an instance, and the paths of the function's administrative
// interface, which clients never reach. Every call is safe for concurrent use, ends with its context and carries
// the context's trace ([api.WithTrace]). A refusal is an *[api.Error].
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

// Paths of the function's administrative interface and of the event receiver.
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

// HeaderRefused marks an answer of an instance that did not pass the request to its runtime: it may be sent
// elsewhere. Its value is the code.
const HeaderRefused = "X-Rouse-Refused"

// HeaderFailed marks an answer of an instance or cluster whose runtime failed before it answered: the holder of the
// request decides on a retry. Ollama's errors have no codes.
const HeaderFailed = "X-Rouse-Failed"

// HeaderWait marks a request sent to an instance right after the call that wakes it. The instance holds it, or the
// answer, until it is awake, for at most [MostWait]. Only the activator sets it.
const HeaderWait = "X-Rouse-Wait"

// HeaderFunction names the function in the autoscaler's answer to a demand with waiting requests. HeaderScaled says
// who scaled it to 0 and until when, if somebody did.
const (
	HeaderFunction = "X-Rouse-Function"
	HeaderScaled   = "X-Rouse-Scaled"
)

// MostWait is how long an instance holds a request with [HeaderWait].
const MostWait = 10 * time.Second

// SleepRequest puts an instance to sleep.
type SleepRequest struct {
	Level api.Level `json:"level"`
	// Epoch is the instance's new lower bound for grants.
	Epoch uint64 `json:"epoch"`
	// Drain is how long running requests may take to finish; 0 means no bound.
	Drain time.Duration `json:"drain"`
	// Move ends running requests at once if all of them can continue at another instance.
	Move bool `json:"move,omitempty"`
}

// FenceRequest raises the epoch below which an instance refuses orders and grants. Running work continues.
type FenceRequest struct {
	Epoch uint64 `json:"epoch"`
}

// AdaptersRequest is the complete list of LoRA adapters that a function declares.
type AdaptersRequest struct {
	Adapters []api.Adapter `json:"adapters"`
}

// StopRequest ends an instance.
type StopRequest struct {
	// Drain is how long running requests may take to finish; 0 ends them at once.
	Drain time.Duration `json:"drain"`
	// Move is as in [SleepRequest].
	Move bool `json:"move,omitempty"`
}

// Client calls instances.
type Client struct {
	http  *http.Client
	token func(api.Endpoint) string
}

// New returns a client. transport must reach endpoints as [api.NewTransport] does. token, if not nil, is called for
// each request and sent as a bearer token.
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

// Wake wakes an instance under a grant, if it is not awake. It returns once the instance has generated a token.
func (c *Client) Wake(ctx context.Context, e api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathWake, g)
}

// Sleep drains an instance and puts it to sleep, or deepens its sleep, if it does not sleep at that level. It
// returns once the instance sleeps.
func (c *Client) Sleep(ctx context.Context, e api.Endpoint, r SleepRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathSleep, r)
}

// Fence invalidates all orders and grants below an epoch at an instance. An instance that sleeps in the returned
// status does so until a later order.
func (c *Client) Fence(ctx context.Context, e api.Endpoint, r FenceRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathFence, r)
}

// Adapters sends an instance the adapters that its function declares. New ones are loaded, at the next wake if it
// sleeps, and missing ones unloaded. A status of 501 means that the runtime takes adapters only at its start; another
// error that one cannot be loaded, while the others are.
func (c *Client) Adapters(ctx context.Context, e api.Endpoint, r AdaptersRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPut, e, PathAdapters, r)
}

// Stop drains an instance and ends it. It returns once the runtime has ended; the process ends right after.
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

// Call sends in, if not nil, as JSON to a path at e, and decodes the answer, of at most most bytes, into out, if
// not nil.
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

// maxStatus bounds the answer of an instance, which is not trusted.
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
