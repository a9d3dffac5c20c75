package functions

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
)

const patience = 3 * time.Second

// entry answers "loading" until the instance knows its function.
type entry struct {
	cfg   Config
	agent *registrar
	ready chan struct{} // closed by open, which sets the fields below before

	next   http.Handler
	report func()
	locate func(control.RegisterAnswer)
}

func (e *entry) isOpen() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

func joined(ctx context.Context, cfg Config, listener net.Listener) error {
	cfg.Token = cmp.Or(cfg.Token, rand.Text())
	e := &entry{ready: make(chan struct{})}
	agent, err := newAgent(cfg, e)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	e.cfg, e.agent = cfg, agent
	door := serve(cfg, listener, e)
	alive, leave := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan struct{})
	go func() {
		defer close(left)
		agent.Run(alive)
	}()
	defer func() {
		leave()
		<-left
	}()
	if err := e.live(ctx, door); err != nil {
		door.shutdown()
		return err
	}
	return nil
}

func newAgent(cfg Config, e *entry) (*registrar, error) {
	namespace := cmp.Or(cfg.Join.Namespace, ThisPod().Namespace)
	if namespace == "" {
		return nil, errors.New("this pod does not know its namespace, which it needs to join Rouse's control plane: set ROUSE_NAMESPACE, or ROUSE_CONTROL=none to run without")
	}
	port := 0
	if u, err := url.Parse(string(cfg.Listen)); err == nil {
		port, _ = strconv.Atoi(u.Port())
	}
	return newRegistrar(registrarConfig{
		Control: cfg.Join.Control, Token: cfg.Token, ProofFile: control.ProofFile, Logger: cfg.Logger,
		Request: control.RegisterRequest{
			Instance: cfg.Instance, Namespace: namespace, Revision: cfg.Join.Revision, Port: port, Role: cfg.Join.Role, Devices: cfg.Devices, Version: cfg.Version,
		},
		Report: func() {
			if e.isOpen() {
				e.report()
			}
		},
		Told: func(a control.RegisterAnswer) {
			if e.isOpen() {
				e.locate(a)
			}
		},
	})
}

// live runs the instance. After an error the server still runs.
func (e *entry) live(ctx context.Context, door serving) error {
	cfg := e.cfg
	clean, err := prepare(&cfg) // while the control plane answers
	if err != nil {
		return err
	}
	defer clean()
	log := process.NewLog(logLines, cfg.Output)
	kept, err := keep(ctx, cfg, log)
	if err != nil {
		return err
	}
	if kept != nil {
		defer kept.Close()
	}
	known, err := e.known(ctx)
	if err != nil {
		door.shutdown()
		return nil
	}
	cfg = cfg.learn(e.agent.Answer())
	if e.agent.Answer().Role == control.RoleRequester {
		return e.claim(ctx, cfg, door)
	}
	var f *function
	err = cfg.Validate()
	if err == nil {
		f, err = assemble(cfg, log, kept, e.agent)
	}
	switch {
	case err != nil && known:
		return e.refuse(ctx, cfg, err, door)
	case err != nil && e.agent.Reason() != nil:
		return errors.Join(err, e.agent.Reason())
	case err != nil:
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	locate := func(a control.RegisterAnswer) {
		if f.supervisor.Reports().SetEndpoint(a.Endpoint); a.Role == control.RoleRequester {
			end(errRole)
		}
	}
	e.open(f, func() { f.report(f.supervisor.Status()) }, locate)
	if a := e.agent.Answer(); !known && a.Endpoint != "" {
		locate(a)
		e.agent.Ask()
	}
	err = f.run(ctx, door)
	if errors.Is(context.Cause(ctx), errRole) {
		return errors.Join(err, errRole)
	}
	return err
}

// learn returns c with the control plane's answer; the command line's settings win.
func (c Config) learn(a control.RegisterAnswer) Config {
	fn := a.Function
	if c.Join.Merge != nil {
		fn = c.Join.Merge(fn)
	}
	if fn.Name == "" {
		fn.Name, fn.Service = c.Function.Name, c.Function.Service
	}
	c.Function = fn
	c.Endpoint, c.Epoch, c.Seq = a.Endpoint, a.Epoch, a.Seq
	if t, found := api.ParseTrace(a.Trace); found {
		c.Trace = t
	}
	c.Asleep = a.Asleep && fn.Runtime.Endpoint == ""
	return c
}

// known blocks until the control plane has answered; false: the instance goes on alone. After an error it must end.
func (e *entry) known(ctx context.Context) (bool, error) {
	var enough <-chan time.Time
	if rt := e.cfg.Function.Runtime; rt.Model != "" || len(rt.Command) > 0 || rt.Endpoint != "" {
		timer := time.NewTimer(cmp.Or(e.cfg.Join.Patience, patience))
		defer timer.Stop()
		enough = timer.C
	}
	for {
		select {
		case <-e.agent.Joined():
			return true, nil
		case <-e.agent.Alone():
			return false, nil
		case <-enough:
			if enough = nil; e.agent.Wrong() {
				continue // wait to be ended
			}
			e.cfg.Logger.Warn("control plane does not answer: running by the command line, and still trying to join", "control", e.cfg.Join.Control, "error", e.agent.Reason())
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-e.cfg.Kill:
			return false, context.Canceled
		}
	}
}

func (e *entry) open(next http.Handler, report func(), locate func(control.RegisterAnswer)) {
	e.next, e.report, e.locate = next, report, locate
	close(e.ready)
}

func (e *entry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == control.PathReport {
		e.ask(w, r)
		return
	}
	if e.isOpen() {
		e.next.ServeHTTP(w, r)
		return
	}
	switch {
	case proxy.AnswersProbe(w, r):
	case strings.HasPrefix(r.URL.Path, "/rouse/"):
		if !e.cfg.admits(w, r) {
			return
		}
		select { // the holder of the token has answered the join, so this takes milliseconds
		case <-e.ready:
			e.next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	default:
		refuse(w, r, e.loading())
	}
}

func (e *entry) loading() *api.Error {
	if e.agent.Reason() != nil {
		return api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "the instance does not know from its control plane what it is: its log says why").WithRetryAfter(time.Second)
	}
	return api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "the instance asks its control plane what it is").WithRetryAfter(time.Second)
}

func refuse(w http.ResponseWriter, r *http.Request, err *api.Error) {
	w.Header().Set(control.HeaderRefused, err.Code)
	api.WriteErrorTo(w, r, err)
}

// ask makes the instance report. It needs no token: the caller learns nothing by it.
func (e *entry) ask(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		proxy.RefuseMethod(w, r, http.MethodPost)
		return
	}
	e.agent.Ask()
	w.WriteHeader(http.StatusAccepted)
}
