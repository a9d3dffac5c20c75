package functions

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/inbound"
)

type userHandlerConfig struct {
	Command []string
	// Env is the inherited environment. Added are PORT, where the program must listen at 127.0.0.1, ROUSE_RUNTIME_URL, where the runtime
	// answers, OPENAI_BASE_URL and OPENAI_API_KEY, the same for the official clients, and ROUSE_MODEL_NAME.
	Env     []string
	Runtime http.Handler
	Model   api.ModelName
	Log     *process.Log
	Start   func(process.Spec) (process.Child, error)
	// StartTimeout bounds the time until its port accepts a connection; 0: 1 min.
	StartTimeout time.Duration
	StopGrace    time.Duration // 0: 5 s
	Logger       *slog.Logger
}

const (
	firstHandlerPause   = 100 * time.Millisecond
	longestHandlerPause = 10 * time.Second
	handlerCalm         = time.Minute // after being ready so long, earlier failures are forgotten
)

const handlerTail = 5

// userHandler runs a user's program between the clients and the runtime. Requests go to the program ($PORT), and from there through our
// inner door ($ROUSE_RUNTIME_URL) to the runtime. It is safe for many goroutines.
//
//  1. Run starts the program. Once its port accepts a connection it gets the requests of clients, see Base.
//  2. If it ends, or never listens, requests are refused with 503 and control.HeaderRefused, so that they are held. It is started again
//     after a pause that doubles from 100 ms to 10 s.
//  3. When Run's context ends it is stopped, with all that it started.
//
// The inner door passes only the client paths, and requires a key that is new for each start of the function.
type userHandler struct {
	cfg userHandlerConfig
	key string

	mu      sync.Mutex    // guards the fields below
	failed  int           // starts that failed in a row
	base    string        // empty while the program is not ready
	why     *api.Error    // for clients
	reason  error         // for the operator
	changed chan struct{} // closed and replaced when base or why changes
}

func newUserHandler(cfg userHandlerConfig) (*userHandler, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, errors.New("handler: no command: name the program and its arguments")
	}
	cfg.StartTimeout, cfg.StopGrace = cmp.Or(cfg.StartTimeout, time.Minute), cmp.Or(cfg.StopGrace, 5*time.Second)
	h := &userHandler{cfg: cfg, key: rand.Text(), changed: make(chan struct{})}
	h.why = api.Errorf(http.StatusServiceUnavailable, api.CodeLoading, "the function's handler is starting")
	h.reason = fmt.Errorf("the handler %s is starting", cfg.Command[0])
	return h, nil
}

// Base returns the program's URL, or a refusal: the program will not see the request.
func (h *userHandler) Base() (base string, refused *api.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.base, h.why
}

const mostHandlerStarts = 3

// Await blocks until the program is ready, ctx ends, or mostHandlerStarts starts in a row have failed.
func (h *userHandler) Await(ctx context.Context) error {
	for {
		h.mu.Lock()
		why, reason, changed, failed := h.why, h.reason, h.changed, h.failed
		h.mu.Unlock()
		if why == nil {
			return nil
		}
		if failed >= mostHandlerStarts {
			return fmt.Errorf("wait for the handler: %w", reason)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the handler: %w (%w)", context.Cause(ctx), reason)
		}
	}
}

func (h *userHandler) become(base string, why *api.Error, reason error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base, h.why, h.reason = base, why, reason; why == nil {
		h.failed = 0
	} else {
		h.failed++
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Run returns when ctx has ended and nothing of the program is left.
func (h *userHandler) Run(ctx context.Context) error {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("handler: listen for its calls of the runtime: %w", err)
	}
	server := &http.Server{
		Handler: inbound.Answered(h.door()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(inner) }()
	pause := firstHandlerPause
	for ctx.Err() == nil {
		ready, err := h.once(ctx, "http://"+inner.Addr().String())
		if ctx.Err() != nil {
			break
		}
		if ready > handlerCalm {
			pause = firstHandlerPause
		}
		message := fmt.Sprintf("the handler %s does not run: %v; see its output, or change the command", h.cfg.Command[0], err)
		if tail := h.cfg.Log.Message(handlerTail); tail != "" {
			message += "; its last output:\n" + tail
		}
		h.cfg.Logger.Warn("handler failed", "error", err, "restart in", pause)
		h.become("", api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the function's handler does not run").WithRetryAfter(pause), errors.New(message))
		_ = bell.Sleep(ctx, pause)
		pause = min(2*pause, longestHandlerPause)
	}
	h.become("", api.Errorf(http.StatusServiceUnavailable, api.CodeShutdown, "the instance is shutting down"), errors.New("the instance is shutting down"))
	err = server.Close()
	<-served //nolint:errcheck // it was told to end
	return err
}

func (h *userHandler) door() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !same(r.Header.Get("Authorization"), "Bearer "+h.key) {
			api.WriteError(w, api.Errorf(http.StatusUnauthorized, "", "this door is for the function's handler: send the key of $OPENAI_API_KEY as a bearer token"))
			return
		}
		r.Header.Del("Authorization")
		h.cfg.Runtime.ServeHTTP(w, r)
	})
}

func (h *userHandler) once(ctx context.Context, runtime string) (ready time.Duration, err error) {
	port, err := process.FreePort()
	if err != nil {
		return 0, err
	}
	h.cfg.Log.Mark()
	p, err := h.cfg.Start(process.Spec{
		Path: h.cfg.Command[0], Args: h.cfg.Command[1:], Lines: h.cfg.Log.Write,
		Env: slices.Concat(h.cfg.Env, []string{
			"PORT=" + port, "ROUSE_RUNTIME_URL=" + runtime, "ROUSE_MODEL_NAME=" + string(h.cfg.Model),
			"OPENAI_BASE_URL=" + runtime + "/v1", "OPENAI_API_KEY=" + h.key,
		}),
	})
	if err != nil {
		return 0, err
	}
	defer p.Stop(h.cfg.StopGrace)
	if err := h.awaitPort(ctx, p, "127.0.0.1:"+port); err != nil {
		return 0, err
	}
	began := time.Now()
	h.become("http://127.0.0.1:"+port, nil, nil)
	select {
	case <-p.Exited():
		return time.Since(began), errors.New(p.Status())
	case <-ctx.Done():
		return time.Since(began), context.Cause(ctx)
	}
}

func (h *userHandler) awaitPort(ctx context.Context, p process.Child, address string) error {
	began := time.Now()
	for {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
			return nil
		}
		waited := time.Since(began)
		if waited > h.cfg.StartTimeout {
			return fmt.Errorf("it does not listen on port $PORT of 127.0.0.1 after %v", h.cfg.StartTimeout)
		}
		select {
		case <-time.After(min(max(waited/50, 2*time.Millisecond), 200*time.Millisecond)):
		case <-p.Exited():
			return errors.New(strings.TrimSpace("it ended before it listened: " + p.Status()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
