package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/clusters"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// keptLines is how many lines of output are kept per function.
const keptLines = 1000

// stopGrace is how long an instance may take to end after it was told to.
const stopGrace = 5 * time.Second

// agent starts instances as child processes and carries out what the
// autoscaler decides. It is the autoscaler's Effects on one machine. Its
// methods are safe for many goroutines.
type agent struct {
	cfg       Config
	dir       string       // the server's folder of sockets
	events    api.Endpoint // where instances report
	control   *control.Client
	activator *activator.Activator
	far       *clusters.Front // nil: there is none
	emit      api.Emitter
	log       *slog.Logger

	mu        sync.Mutex // guards what follows
	instances map[api.InstanceID]*instance
	prewarmed *prewarmed // nil: none
	output    map[api.FunctionName]*process.Log
	serial    int
	ended     sync.WaitGroup // the goroutines that wait for processes

	prewarmedTaken bell.Bell // heard by keepPrewarmed, which looks whether there is a prewarmed process
}

// instance is one child process.
type instance struct {
	id       api.InstanceID
	function api.FunctionName
	process  *process.Process
	dir      string
	gone     chan struct{} // closed once the process is gone and that was reported
}

// Start starts an instance of that ID and returns once its process runs.
func (a *agent) Start(_ context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.instances[id] != nil {
		return id, nil
	}
	a.serial++
	dir := filepath.Join(a.dir, strconv.Itoa(a.serial))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	spec, err := a.spawn(f, id, g, dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	p, err := a.launch(spec)
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	i := &instance{id, f.Name, p, dir, make(chan struct{})}
	a.instances[id] = i
	a.ended.Go(func() { a.await(i) })
	return id, nil
}

// await reports the end of an instance, however it came.
func (a *agent) await(i *instance) {
	<-i.process.Exited()
	a.mu.Lock()
	delete(a.instances, i.id)
	a.mu.Unlock()
	_ = os.RemoveAll(i.dir)
	status := api.InstanceStatus{Instance: i.id, Function: i.function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now(), Message: i.process.Status()}
	a.emit.Emit(api.NewEvent(api.EventInstanceState, "/node", i.function, status))
	close(i.gone)
}

// Wake wakes a sleeping instance and returns when it is awake.
func (a *agent) Wake(ctx context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	return a.control.Wake(ctx, s.Endpoint, g)
}

// Sleep drains an instance and puts it to sleep.
func (a *agent) Sleep(ctx context.Context, s api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	return a.control.Sleep(ctx, s.Endpoint, control.SleepRequest{Level: level, Epoch: epoch, Drain: drain.Limit, Move: drain.Move})
}

// Fence makes every order and grant with a lower epoch worthless.
func (a *agent) Fence(ctx context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	return a.control.Fence(ctx, s.Endpoint, control.FenceRequest{Epoch: epoch})
}

// Stop drains an instance, ends it, and returns when its process and all that it started are gone. When ctx ends first they are killed.
func (a *agent) Stop(ctx context.Context, s api.InstanceStatus, drain api.Drain) error {
	a.mu.Lock()
	i := a.instances[s.Instance]
	a.mu.Unlock()
	if i == nil {
		return nil
	}
	told := false
	if s.Endpoint != "" { // else it has not reported yet
		_, err := a.control.Stop(ctx, s.Endpoint, control.StopRequest{Drain: drain.Limit, Move: drain.Move})
		if told = err == nil; !told && ctx.Err() == nil {
			a.log.Debug("an instance did not take the order to stop; ending its process", "instance", i.id, "error", err)
		}
	}
	if told {
		select {
		case <-i.gone:
			return nil
		case <-time.After(stopGrace):
		case <-ctx.Done():
		}
	}
	done := context.AfterFunc(ctx, i.process.Kill)
	defer done()
	i.process.Stop(stopGrace)
	<-i.gone
	return nil
}

// Adapt gives an instance the list of its adapters.
func (a *agent) Adapt(ctx context.Context, s api.InstanceStatus, list []api.Adapter) error {
	_, err := a.control.Adapters(ctx, s.Endpoint, control.AdaptersRequest{Adapters: list})
	return err
}

// State asks an instance how it is.
func (a *agent) State(ctx context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	a.mu.Lock()
	i := a.instances[s.Instance]
	a.mu.Unlock()
	if i == nil {
		return api.InstanceStatus{Instance: s.Instance, Function: s.Function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now()}, nil
	}
	if s.Endpoint == "" {
		return s, fmt.Errorf("ask %s for its state: it has not reported yet", s.Instance)
	}
	return a.control.State(ctx, s.Endpoint)
}

// Grant lets the activator wake an instance by itself.
func (a *agent) Grant(_ context.Context, g api.Grant) error {
	a.activator.Grant(g)
	return nil
}

// Revoke takes a grant back.
func (a *agent) Revoke(ctx context.Context, g api.Grant) error { return a.activator.Revoke(ctx, g) }

// Fail makes the activator answer what waits for a function with err.
func (a *agent) Fail(_ context.Context, name api.FunctionName, err *api.Error) error {
	if a.far != nil { // clusters may have it
		a.far.FailNear(name, err)
	} else {
		a.activator.Fail(name, err)
	}
	return nil
}

// killAll ends every process that is left and waits for it.
func (a *agent) killAll() {
	a.mu.Lock()
	var left []*instance
	for _, i := range a.instances {
		left = append(left, i)
	}
	a.mu.Unlock()
	var all sync.WaitGroup
	for _, i := range left {
		all.Go(func() { i.process.Stop(stopGrace) })
	}
	all.Wait()
	a.ended.Wait()
}

// logOf is the kept output of a function, made where there is none. The caller holds a.mu.
func (a *agent) logOf(name api.FunctionName) *process.Log {
	l := a.output[name]
	if l == nil {
		var echo *prefixed
		if a.cfg.InstanceOutput != nil {
			echo = &prefixed{a.cfg.InstanceOutput, name.Name() + " | "}
			l = process.NewLog(keptLines, echo)
		} else {
			l = process.NewLog(keptLines, nil)
		}
		a.output[name] = l
	}
	return l
}

// followLog gives f the last n lines of a function's output and, if more is set, each further one.
func (a *agent) followLog(ctx context.Context, name api.FunctionName, n int, more bool, f func(string) error) error {
	a.mu.Lock()
	l := a.logOf(name)
	a.mu.Unlock()
	if more {
		if err := l.Follow(ctx, n, f); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
	for _, line := range l.Tail(n) {
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the kept output of a function that was removed.
func (a *agent) forget(name api.FunctionName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.output, name)
}

// prefixed writes each line after a prefix.
type prefixed struct {
	w      interface{ Write([]byte) (int, error) }
	prefix string
}

func (p *prefixed) Write(line []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// deathSignal is what instances get when this process dies: SIGTERM, so that
// each can end its runtime with all that it started.
const deathSignal = syscall.SIGTERM

// controlTransport reaches instances for the control plane: a few connections
// each, apart from those that carry requests.
func controlTransport() http.RoundTripper { return localhttp.New(2, idleConnection) }

// idleConnection is less than an instance keeps an idle connection.
const idleConnection = 90 * time.Second
