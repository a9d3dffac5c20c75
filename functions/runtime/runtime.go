// Package runtime knows the model servers: how each is started, where it then
// listens, how it shows that it computes, how it sleeps and wakes, takes adapters
// and tells its load, and how its HTTP differs from the OpenAI API. It starts no
// process and keeps no state of an instance; package supervise does.
//
// A runtime is used in this order, by one goroutine at a time but for its
// [Dialect] and [Runtime.Signals]:
//
//  1. [Runtime.Launch] gives the command line and the endpoint of one start, or the
//     endpoint of a server that somebody else starts (a sidecar).
//  2. Where the launch announces, the supervisor waits for its line of output,
//     and the start is over.
//  3. Else [Runtime.Probe] is tried until it has computed one token: health paths
//     of model servers answer before the model does, so nothing less counts.
//  4. [Runtime.Sleep] and [Runtime.Wake], where [Traits] say that it has them.
//     Who calls Sleep has drained: most servers cut what runs. A wake ends with a
//     probe too, for servers say that they are awake when they are not.
//
// One that another process of the same instance has launched is used from 3. on.
//
// The server listens where nobody but this instance reaches it: many have calls
// that need no key and can do anything. Options that would change where it listens
// or what it is called are refused, with what to do instead; further ones of the
// user's stand behind ours. Nothing secret is ever an option.
//
// One adapter is one file. A new one is a new case in [New].
package runtime

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Launch is one start of a runtime.
type Launch struct {
	// Path, Args and Env are as in package process. Env may hold secrets.
	Path string
	Args []string
	Env  []string
	// Endpoint is where the runtime will listen.
	Endpoint api.Endpoint
	// Attach says that somebody else starts and stops the server (a sidecar
	// container): there is nothing to execute, only Endpoint counts.
	Attach bool
	// Announce is the beginning of the line of output that says that it listens
	// and has generated a token, which spares the first probe; empty: it says nothing.
	Announce string
}

// Traits are what a supervisor must know of a runtime.
type Traits struct {
	// Reuses: connections to it carry further requests. It answers each connection's requests in their order, and idle connections keep no
	// other client waiting.
	Reuses bool
	// Sleeps: it sleeps in place. Else its sleep is a stop of its process.
	Sleeps bool
	// Deepens: asleep at level 1 it can go to level 2 without a wake.
	Deepens bool
	// Adapts: LoRA adapters can be loaded and unloaded while it runs.
	Adapts bool
	// Brings: it may have adapters that the function does not know of, and lists them among its models.
	Brings bool
	// Readiness: its probe says whether it is to get requests, also after the start. Where it fails the server is not started anew.
	Readiness bool
	// Room is how many adapters it keeps loaded beside those that its options name; 0: it has not said, or as many
	// as there are; negative: none.
	Room int
}

// Runtime is one kind of model server. Every call ends when its context ends.
type Runtime interface {
	Dialect
	Traits() Traits
	// Launch prepares a start. model is what to load: the reference as declared, or
	// the path of the file or folder that it was fetched to.
	Launch(model string) (Launch, error)
	// Probe generates one token. A server that is not there yet or still loads is an error like any other.
	Probe(ctx context.Context, e api.Endpoint) error
	// Sleep puts an idle server to sleep, or deepens its sleep.
	Sleep(ctx context.Context, e api.Endpoint, level api.Level) error
	// Canary has an awake server answer the canary as one of its adapters, or as the model itself where the name is empty; where
	// Config.CanaryTokens is 0, or the server does not take it, it is a probe, and the answer is none.
	Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error)
	// Wake wakes one that sleeps at level. It returns once the server has answered the
	// canary as the model itself: whether that is what it should say, others judge. serves is
	// called when the server takes requests again, before it has shown what it answers, where
	// there is such a moment; nil: nobody wants to know.
	Wake(ctx context.Context, e api.Endpoint, level api.Level, serves func()) (Answer, error)
	// Reload has an awake server read its weights anew, and forget what it computed with
	// those that it had. [errors.ErrUnsupported]: only a new start does that.
	Reload(ctx context.Context, e api.Endpoint) error
	// LoadAdapter loads a LoRA adapter, or does nothing where it is loaded. The
	// server must be awake. [errors.ErrUnsupported]: it has no adapters at run time.
	LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error
	// UnloadAdapter unloads one, or does nothing where it is not loaded.
	UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error
	// Signals reads the server's load from its own metrics.
	// [errors.ErrUnsupported]: it has none, and who asks counts for itself.
	Signals(ctx context.Context, e api.Endpoint) (Signals, error)
}

// Mover is a [Runtime] whose requests can go on at another instance, where who sent them has asked for it ([control.HeaderState]).
type Mover interface {
	// Move is Sleep for a server with such requests: it ends them between two steps, and sleeps.
	Move(ctx context.Context, e api.Endpoint, level api.Level) error
}

// Tellable is a [Runtime] whose server can tell the ids of tokens, and takes ids as a prompt, so that its streams can go on at another instance.
type Tellable interface {
	// Started is the model that the server was last started with, and how often it was started; empty: this process has not started it.
	Started() (model string, times uint64)
}

// Keeper is a [Runtime] whose server may keep what its prefix cache has while it sleeps.
type Keeper interface {
	// Kept is how many tokens it kept in the last sleep. It does not block.
	Kept() api.Tokens
}

// Yielder is a [Runtime] that can do without an option of ours that its server refuses.
type Yielder interface {
	// Yield reads what a server printed that ended before it was ready, and says what later launches go without; empty: nothing is refused.
	Yield(output string) (without string)
}

// Publisher is a [Runtime] whose server publishes what its prefix cache has.
type Publisher interface {
	// CacheEvents is the ZeroMQ endpoint where it does, the same at each launch; empty: it does not.
	CacheEvents() string
}

// Dialect is how a server's HTTP differs from what clients send and expect. Its
// methods are safe for many goroutines, and change nothing besides what they are given.
type Dialect interface {
	// Request changes the body of a client's request, JSON or not, on its way to the
	// server: fields it must not see, fields it knows under another name, its own
	// name for the model. An error is the client's fault.
	Request(path string, body *jsonfield.Object) *api.Error
	// Failure makes an OpenAI error body of an answer with a status of 400 or more.
	Failure(path string, status int, body []byte) []byte
}

// Config says which runtime.
type Config struct {
	// Spec is the runtime as the function declares it.
	Spec api.Runtime
	// Model is the name that clients use.
	Model api.ModelName
	// Aliases are further names for it.
	Aliases []api.ModelName
	// Dir is a folder of the instance's own, for a socket and for files that a runtime needs.
	Dir string
	// Concurrency is the number of requests that the runtime gets at once; 0: the
	// runtime's own default is left.
	Concurrency int
	// MaxBody is the largest body that the runtime gets; 0: 64 MiB. Our own engine takes as much.
	MaxBody api.Bytes
	// Port is where a server of the kinds command and http listens whatever it is told; 0: where it is told to.
	Port int
	// ProbePath is what a server of the kind http answers with success when it is ready; empty: that it takes connections is enough.
	ProbePath string
	// ProbeCommand is a command that ends with success when such a server is ready; empty: ProbePath says.
	ProbeCommand []string
	// Devices is the number of GPUs that the instance was given; 0: none, or not known.
	Devices int
	// CanaryTokens is how many tokens of the canary are asked for; 0: there is none. Our
	// own engine has one token, whatever the number.
	CanaryTokens int
	// Engine is the program that has the subcommand "engine serve"; for [api.RuntimeEngine].
	Engine string
	// Tiles is the folder in which our own engine keeps repacked weights, which its processes share; "": the engine's default.
	Tiles string
	// Env is the environment that the runtime inherits; Spec.Env is added to it.
	Env []string
	// Transport reaches every [api.Endpoint].
	Transport http.RoundTripper
}

// New makes the adapter for cfg.Spec.Kind.
func New(cfg Config) (Runtime, error) {
	if err := checkAttach(cfg.Spec); err != nil {
		return nil, err
	}
	client := &client{http: &http.Client{Transport: cfg.Transport}}
	switch cfg.Spec.Kind {
	case api.RuntimeEngine:
		return newEngine(cfg, client)
	case api.RuntimeVLLM:
		return newVLLM(cfg, client)
	case api.RuntimeSGLang:
		return newSGLang(cfg, client)
	case api.RuntimeOllama:
		return newOllama(cfg, client)
	case api.RuntimeLlamaCpp:
		return newLlamaCpp(cfg, client)
	case api.RuntimeRayServe:
		return newRayServe(cfg, client)
	case api.RuntimeCommand:
		return newCommand(cfg, client)
	case api.RuntimeHTTP:
		return newHTTP(cfg)
	}
	return nil, fmt.Errorf("runtime kind %q: want one of %s", cfg.Spec.Kind, strings.Join(api.RuntimeKinds, ", "))
}

// over says whether ctx has ended, or its deadline has come: what dials may notice that first.
func over(ctx context.Context) bool {
	deadline, set := ctx.Deadline()
	return ctx.Err() != nil || set && !time.Now().Before(deadline)
}

// Finder is a runtime that can say before its model is there why its program can't be executed.
type Finder interface{ Find() error }

// Await probes until the server has generated a token, which is the end of a
// start, and returns the last failure when ctx ends first, or when the server says
// what another try does not change. heard is called once,
// when the server first answers anything, failed with why a try failed where a second has passed and it is
// another reason than the one before. The pause between two tries grows with
// the time waited, so that a short start is seen within 2 ms and a long one
// within 2 % of its length, or 200 ms.
func Await(ctx context.Context, r Runtime, e api.Endpoint, heard func(), failed func(error)) error {
	begin := time.Now()
	var last error
	told := ""
	for {
		err := r.Probe(ctx, e)
		if err == nil || Permanent(err) {
			return err
		}
		if last == nil || !over(ctx) { // that it was cancelled explains nothing
			last = err
		}
		if heard != nil && answered(err) {
			heard()
			heard = nil
		}
		if text := last.Error(); failed != nil && text != told && time.Since(begin) >= time.Second {
			told = text
			failed(last)
		}
		pause := min(max(time.Since(begin)/50, 2*time.Millisecond), 200*time.Millisecond)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), last)
		}
	}
}
