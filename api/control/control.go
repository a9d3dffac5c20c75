// Package control is the control plane's side of an instance: the paths of the
// function's administrative interface and a client for them. Clients of a
// function never reach these paths; the activator forwards client paths only.
//
// Every call is safe for many goroutines and ends when its context ends; it carries
// the trace of its context ([api.WithTrace]). A
// refusal comes back as an *[api.Error] with one of the codes of package api.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths of the function's administrative interface, and of the receiver of events.
const (
	PathState = "/rouse/v1/state" // GET: InstanceStatus
	PathWake  = "/rouse/v1/wake"  // POST Grant: blocks until awake, InstanceStatus
	PathSleep = "/rouse/v1/sleep" // POST SleepRequest: blocks until asleep, InstanceStatus
	PathFence = "/rouse/v1/fence" // POST FenceRequest: refuses older orders from now on, InstanceStatus
	// PathAdapters: PUT AdaptersRequest: blocks until they are what is loaded, InstanceStatus
	PathAdapters = "/rouse/v1/adapters"

	PathStop   = "/rouse/v1/stop"   // POST StopRequest: drains, answers, then the process ends
	PathLogs   = "/rouse/v1/logs"   // GET ?tail=N&follow=true: the runtime's output, text lines
	PathEvents = "/rouse/v1/events" // POST CloudEvent, to the autoscaler's side
)

// HeaderRefused marks an answer of an instance that has not given the request
// to its runtime: the request may be sent elsewhere. Its value is the code.
const HeaderRefused = "X-Rouse-Refused"

// HeaderFailed marks an answer of an instance, or of a cluster, to a request that a runtime there was given, and failed before
// it answered: who holds the request decides whether it is tried again. The body need not say so: Ollama's errors have no codes.
const HeaderFailed = "X-Rouse-Failed"

// HeaderWait marks a request that goes to an instance behind the call that wakes it: the
// instance keeps it, or what its runtime answers, until it is awake, and for [MostWait] at most. Only the activator says so.
const HeaderWait = "X-Rouse-Wait"

// HeaderFunction is in the autoscaler's answer to a demand of requests that wait: the function. HeaderScaled beside it says who
// keeps it at 0 until when, and is left out where nobody does.
const (
	HeaderFunction = "X-Rouse-Function"
	HeaderScaled   = "X-Rouse-Scaled"
)

// MostWait is how long an instance that sleeps or wakes keeps such a request.
const MostWait = 10 * time.Second

// SleepRequest puts an instance to sleep.
type SleepRequest struct {
	Level api.Level `json:"level"`
	// Epoch fences: grants with a lower epoch are refused from now on.
	Epoch uint64 `json:"epoch"`
	// Drain is how long running requests may take to finish; 0 means no bound.
	Drain time.Duration `json:"drain"`
	// Move ends running requests at once, where all of them can go on at another instance.
	Move bool `json:"move,omitempty"`
}

// FenceRequest changes nothing but what an instance obeys: orders and grants with a lower
// epoch are refused from now on. What is under way goes on.
type FenceRequest struct {
	Epoch uint64 `json:"epoch"`
}

// AdaptersRequest is the whole list of LoRA adapters that a function declares, where it has changed
// since the instance was started.
type AdaptersRequest struct {
	Adapters []api.Adapter `json:"adapters"`
}

// StopRequest ends an instance.
type StopRequest struct {
	// Drain is how long running requests may take to finish; 0 means that they are cut at once.
	Drain time.Duration `json:"drain"`
	// Move is as in [SleepRequest].
	Move bool `json:"move,omitempty"`
}

// Client calls instances. The zero value is not usable: see [New].
type Client struct {
	http  *http.Client
	token func(api.Endpoint) string
}

// New makes a client. transport must reach endpoints as [api.NewTransport] does.
// token, if not nil, is called for each request and sent as a bearer token.
func New(transport http.RoundTripper, token func() string) *Client {
	if token == nil {
		return NewFor(transport, nil)
	}
	return NewFor(transport, func(api.Endpoint) string { return token() })
}

// NewFor is [New] where each instance has a token of its own. An empty token is not sent.
func NewFor(transport http.RoundTripper, token func(api.Endpoint) string) *Client {
	// What an instance answers is the instance's to say, and not where its caller goes next.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &http.Client{Transport: transport, CheckRedirect: stay}, token: token}
}

// State asks an instance for its status.
func (c *Client) State(ctx context.Context, e api.Endpoint) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodGet, e, PathState, nil)
}

// Wake wakes an instance under a grant. It returns once the instance has generated a token.
// Waking one that is awake does nothing and succeeds.
func (c *Client) Wake(ctx context.Context, e api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathWake, g)
}

// Sleep drains an instance and puts it to sleep. It returns once it sleeps.
// It also deepens a sleep; to sleep at the level it has does nothing and succeeds.
func (c *Client) Sleep(ctx context.Context, e api.Endpoint, r SleepRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathSleep, r)
}

// Fence makes every order and grant of before epoch worthless at an instance. The status
// that it returns is true after that: an instance that sleeps then does so until a later order.
func (c *Client) Fence(ctx context.Context, e api.Endpoint, r FenceRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathFence, r)
}

// Adapters gives an instance the list of adapters that its function declares. What is new in it is
// loaded, at the next wake where the instance sleeps, and what is gone from it unloaded. An error with
// status 501 says that the runtime takes adapters at its start only; any other that one of them can't be
// loaded, while the others are.
func (c *Client) Adapters(ctx context.Context, e api.Endpoint, r AdaptersRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPut, e, PathAdapters, r)
}

// Stop drains an instance and ends it. It returns once the runtime is gone; the process ends right after.
func (c *Client) Stop(ctx context.Context, e api.Endpoint, r StopRequest) (api.InstanceStatus, error) {
	return c.call(ctx, http.MethodPost, e, PathStop, r)
}

// Logs returns the runtime's output: the last tail lines, and with follow all
// that come until ctx ends. The caller closes it.
func (c *Client) Logs(ctx context.Context, e api.Endpoint, tail int, follow bool) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, e, fmt.Sprintf("%s?tail=%d&follow=%t", PathLogs, tail, follow), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (c *Client) call(ctx context.Context, method string, e api.Endpoint, path string, in any) (api.InstanceStatus, error) {
	var s api.InstanceStatus
	if err := c.Call(ctx, method, e, path, in, &s, maxStatus); err != nil {
		return api.InstanceStatus{}, err
	}
	return s, nil
}

// Call sends in, if not nil, as JSON to a path at e, and reads the answer into out, if not nil, where it is no longer than most bytes. A
// refusal is an *[api.Error].
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
	_, _ = io.Copy(io.Discard, answer) // so that the connection is used again
	return nil
}

// maxStatus bounds what an instance answers: it may be anybody's.
const maxStatus = 1 << 20

func (c *Client) send(ctx context.Context, method string, e api.Endpoint, path string, in any) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, e.URL(path), body)
	if err != nil {
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
