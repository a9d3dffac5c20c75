package local

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// config returns the configuration of an instance that sends its events to emit.
func (a *agent) config(f api.Function, id api.InstanceID, g api.Grant, dir string, emit func(api.Event)) functions.Config {
	out := lines{a.logOf(f.Name)}
	cfg := a.base
	cfg.Function, cfg.Instance, cfg.Endpoint, cfg.Dir, cfg.Emit, cfg.Epoch = f, id, api.Endpoint("http://"+string(id)+instanceDomain), dir, emit, g.Epoch
	cfg.Output, cfg.Logger = out, slog.New(slog.NewTextHandler(out, nil)).With("instance", id)
	cfg.Trace, _ = api.ParseTrace(g.Trace)
	switch f.Runtime.Kind {
	case api.RuntimeEngine, api.RuntimeOllama, api.RuntimeLlamaCpp:
	default: // connections may be upgraded
		cfg.Listen = streamSocket(dir)
	}
	if f.Runtime.Kind == api.RuntimeHTTP {
		cfg.Endpoint = cfg.Listen
	}
	var gpus []string
	for _, d := range g.Devices {
		if d != api.HostMemory {
			gpus, cfg.Devices = append(gpus, string(d)), append(cfg.Devices, d)
		}
	}
	if len(gpus) > 0 {
		cfg.Env = append(slices.Clip(cfg.Env), "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
	}
	return cfg
}

// lines writes whole lines to a log.
type lines struct{ log *process.Log }

// Write implements [io.Writer].
func (l lines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.log.Write(bytes.TrimRight(line, "\n"))
	}
	return len(p), nil
}

const instanceDomain = ".rouse.internal"

// prewarmAfter is the pause between an instance's becoming awake and prewarming the next process, so that this takes no processor time
// from the first answers.
const prewarmAfter = 100 * time.Millisecond

// keepPrewarmed keeps a parent process for the next runtime running, until ctx ends: starting it takes longer than everything else between
// a request and the runtime's own start.
func (a *agent) keepPrewarmed(ctx context.Context) error {
	for a.base.Keep != nil && ctx.Err() == nil {
		a.prewarming.Lock()
		if a.prewarmed == nil {
			var err error
			a.prewarmed, err = shim.Open(ctx, shim.ClientConfig{Command: a.base.Keep, Env: a.base.Env, Logger: a.log})
			if err != nil { // instances still start, only later
				a.log.Debug("no process is started ahead", "error", err)
			}
		}
		a.prewarming.Unlock()
		select {
		case <-a.prewarmedTaken:
		case <-ctx.Done():
		}
		_ = bell.Sleep(ctx, prewarmAfter)
	}
	if p := a.takePrewarmed(); p != nil {
		p.Close()
	}
	return nil
}

// takePrewarmed returns the prewarmed process, and waits for one that is starting; nil: there is none.
func (a *agent) takePrewarmed() (p *shim.Client) {
	a.prewarming.Lock()
	defer a.prewarming.Unlock()
	p, a.prewarmed = a.prewarmed, nil
	return p
}

// at returns the instance in this process with the endpoint e, and an error if there is none.
func (a *agent) at(e api.Endpoint) (*functions.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.instances {
		if i.endpoint == e {
			return i.Instance, nil
		}
	}
	return nil, fmt.Errorf("the instance at %s has ended: %w", e, syscall.ECONNREFUSED)
}

// streamSocket is where the instance in a folder takes connections that may be upgraded.
func streamSocket(dir string) api.Endpoint {
	return api.Endpoint("unix:" + filepath.Join(dir, "fn.sock"))
}

var dialInstance = api.NewTransport(0).DialContext

// dial reaches the instance at an address, for a connection that may be upgraded.
func (a *agent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	id, here := strings.CutSuffix(host, instanceDomain)
	if !here {
		return dialInstance(ctx, network, address)
	}
	i, err := a.running(ctx, api.InstanceID(id))
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(string(streamSocket(i.dir)), "unix:"))
}

// waker wakes instances for the activator.
type waker struct{ agent *agent }

// Wake implements [queue.Waker].
func (w waker) Wake(ctx context.Context, e api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	i, err := w.agent.at(e)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Wake(ctx, g)
}

// idleConnection is shorter than instances keep idle connections open.
const idleConnection = 90 * time.Second

// reaching is a transport to instances.
type reaching struct {
	agent   *agent
	sockets *localhttp.Transport // to instances that listen
}

// RoundTrip implements [http.RoundTripper].
func (t reaching) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripCharged(r, nil)
}

// RoundTripCharged is like [localhttp.Transport.RoundTripCharged]. The header of an answer from this process is charged once it exists.
func (t reaching) RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error) {
	id, here := strings.CutSuffix(r.URL.Host, instanceDomain)
	if !here {
		return t.sockets.RoundTripCharged(r, charge)
	}
	i, err := t.agent.running(r.Context(), api.InstanceID(id))
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	resp, err := i.RoundTrip(r)
	if err != nil || charge == nil {
		return resp, err
	}
	size := 0
	for name, values := range resp.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > largeHeader {
		if err := charge(2 * int64(size)); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

// largeHeader is the size in bytes above which the header of an answer is charged.
const largeHeader = 16 << 10
