// Package runtime knows the model servers: how each starts, where it listens, how to
// check that it computes, how it sleeps, wakes, loads adapters and reports its load, and
// how its HTTP differs from the OpenAI API. It starts no process and keeps no state of
// an instance; package supervise does.
//
// A runtime is used in this order, by one goroutine at a time except for its
// [Dialect] and [Runtime.Signals]:
//
//  1. [Runtime.Launch] returns the command line and the endpoint of one start.
//  2. If the launch announces itself, that line of output ends the start.
//  3. Else [Runtime.Probe] is called until it has computed one token: health paths answer too early.
//  4. [Runtime.Sleep], of a drained server, and [Runtime.Wake] are called, if [Traits] say that it has them.
//
// A server that another process of the same instance has launched is used from step 3 on.
//
// Servers have calls that need no key and can do anything, so they listen where only this instance reaches them.
// Options that change that are refused; the user's others follow ours. Secrets are never options.
package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// Launch is one start of a runtime.
type Launch struct {
	// Path, Args and Env are as in package process. Env may hold secrets.
	Path     string
	Args     []string
	Env      []string
	Endpoint api.Endpoint
	// Attach says that somebody else starts and stops the server (a sidecar): only Endpoint counts.
	Attach bool
	// Announce is the prefix of the output line that says that the runtime listens and has generated a token; empty: it needs a probe.
	Announce string
}

// Traits are the properties of a runtime that a supervisor needs.
type Traits struct {
	// Reuses: a connection carries further requests, answered in order, and idle ones delay no other clients.
	Reuses bool
	// Sleeps: it sleeps in place. Else its process is stopped.
	Sleeps bool
	// Deepens: it goes from level 1 to 2 without a wake.
	Deepens bool
	// Adapts: LoRA adapters can be loaded and unloaded while it runs.
	Adapts bool
	// Brings: it may list adapters among its models that the function does not know of.
	Brings bool
	// Readiness: its probe decides whether it gets requests, also after the start, without a restart.
	Readiness bool
	// Room is how many adapters it keeps loaded besides those in its options; 0: unknown or unbounded; negative: none.
	Room int
}

// Runtime is one kind of model server. Calls end when their context ends.
type Runtime interface {
	Dialect
	Traits() Traits
	// Launch prepares a start. model is the reference as declared, or the path of the fetched file or folder.
	Launch(model string) (Launch, error)
	// Probe generates one token. It fails while the server is not there or loads.
	Probe(ctx context.Context, e api.Endpoint) error
	// Sleep puts an idle server to sleep, or deepens its sleep.
	Sleep(ctx context.Context, e api.Endpoint, level api.Level) error
	// Canary asks an awake server as one of its adapters, or as the model itself if the name is empty. Without a canary, or if the server
	// refuses it, it probes, and the answer is empty.
	Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error)
	// Wake wakes a server that sleeps at level, and blocks until it has answered the canary as the model itself; the caller judges the
	// answer. serves, if not nil, is called when the server accepts requests again, if it does so before that answer.
	Wake(ctx context.Context, e api.Endpoint, level api.Level, serves func()) (Answer, error)
	// Reload makes an awake server load its weights again, and forget what it computed. [errors.ErrUnsupported]: only a new start does
	// that.
	Reload(ctx context.Context, e api.Endpoint) error
	// LoadAdapter loads a LoRA adapter into an awake server, unless it is loaded. [errors.ErrUnsupported]: it can't while it runs.
	LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error
	// UnloadAdapter unloads an adapter, if it is loaded.
	UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error
	// Signals reads the server's load. [errors.ErrUnsupported]: it has no metrics, and the caller must count itself.
	Signals(ctx context.Context, e api.Endpoint) (Signals, error)
}

// Mover is a [Runtime] whose requests can continue at another instance, if their sender has asked for it ([control.HeaderState]).
type Mover interface {
	// Move is Sleep that ends such requests between two steps.
	Move(ctx context.Context, e api.Endpoint, level api.Level) error
}

// Tellable is a [Runtime] whose server can report token IDs and accepts them as a prompt, so that its streams can continue elsewhere.
type Tellable interface {
	// Started returns the model of the last start, and the number of starts; empty: this process has not started it.
	Started() (model string, times uint64)
}

// Keeper is a [Runtime] whose server may keep its prefix cache while it sleeps.
type Keeper interface {
	// Kept returns how many tokens it kept in the last sleep. It does not block.
	Kept() api.Tokens
}

// Yielder is a [Runtime] that can do without an option of ours that its server refuses.
type Yielder interface {
	// Yield reads the output of a server that ended before it was ready, and returns what later launches go without; empty: nothing.
	Yield(output string) (without string)
}

// Describer is a [Runtime] whose awake server describes its model.
type Describer interface {
	Describe(ctx context.Context, e api.Endpoint) (api.ModelFacts, error)
}

// Publisher is a [Runtime] whose server publishes the contents of its prefix cache.
type Publisher interface {
	// CacheEvents returns the ZeroMQ endpoint of the events, the same at each launch; empty: none.
	CacheEvents() string
}

// Dialect converts between a server's HTTP and the clients'. Its methods are safe for many goroutines.
type Dialect interface {
	// Request converts the body of a client's request, JSON or not. An error is the client's fault.
	Request(path string, body *jsonfield.Object) *api.Error
	// Failure converts an answer with a status of 400 or more into an OpenAI error body.
	Failure(path string, status int, body []byte) []byte
}

// Config describes the runtime.
type Config struct {
	Spec api.Runtime
	// Model is the name that clients use.
	Model   api.ModelName
	Aliases []api.ModelName
	// Dir is a folder of the instance, for sockets and other files.
	Dir string
	// Concurrency is the largest number of concurrent requests; 0: the runtime's default.
	Concurrency int
	// MaxBody is the largest body that the runtime gets; 0: 64 MiB.
	MaxBody api.Bytes
	// Port is the port of servers of the kinds command and http that cannot be told one; 0: they get one.
	Port int
	// ProbePath is where a server of the kind http answers with success when it is ready; empty: an open port is enough.
	ProbePath string
	// ProbeCommand, if not empty, replaces ProbePath by a command's success.
	ProbeCommand []string
	// Devices is the number of GPUs; 0: none, or not known.
	Devices int
	// Instance is a name that no other instance on the machine has.
	Instance string
	Alone    bool
	// CanaryTokens is the number of tokens that the canary generates; 0: no canary. Our own engine generates one.
	CanaryTokens int
	// Engine is the program that has the subcommand "engine serve".
	Engine string
	// Tiles is the folder for our own engine's repacked weights, which its processes share; "": the engine's default.
	Tiles string
	// Env is the environment that the runtime inherits; Spec.Env is added to it.
	Env []string
	// Transport reaches every [api.Endpoint].
	Transport http.RoundTripper
}

var kinds = map[string]struct {
	reserved reserved
	// lacks says what a runtime without model, command and endpoint needs; empty: its adapter checks it.
	lacks string
	// options also name a model.
	options []string
	adapter func(Config, *client) (Runtime, error)
}{
	api.RuntimeEngine: {engineReserved, "", nil, newEngine},
	api.RuntimeVLLM:   {vllmReserved, noFolder, nil, newVLLM},
	api.RuntimeSGLang: {sglangReserved, noFolder, nil, newSGLang},
	api.RuntimeOllama: {ollamaReserved, "", nil, newOllama},
	api.RuntimeLlamaCpp: {llamaCppReserved, "no model; set the model's reference, such as the path of a GGUF file or hf://org/name",
		[]string{"-hf", "-hfr", "--hf-repo", "-mu", "--model-url", "-dr", "--docker-repo"}, newLlamaCpp},
	api.RuntimeRayServe: {rayReserved, "no application; set the model's reference to an import path (module:app) or a configuration file", nil, newRayServe},
	api.RuntimeCommand:  {nil, "no command line; give the server's command, with $(SOCKET) where the path of its socket goes, or $(PORT) where the port goes", nil, newCommand},
	api.RuntimeHTTP:     {nil, "no command line; give the server's command, with $(PORT) where the port goes", nil, newHTTP},
}

const noFolder = "no model; set the model's reference, such as hf://org/name or the path of a folder"

// New returns the adapter for cfg.Spec.Kind.
func New(cfg Config) (Runtime, error) {
	spec := cfg.Spec
	k, known := kinds[spec.Kind]
	if !known {
		return nil, fmt.Errorf("runtime kind %q: want one of %s", spec.Kind, strings.Join(api.RuntimeKinds, ", "))
	}
	lacks := spec.Endpoint == "" && spec.Model == "" && !has(spec.Args, k.options...)
	if k.reserved == nil { // a model is served by a command
		lacks = spec.Endpoint == "" && len(spec.Command) == 0
	}
	err := cmp.Or(checkAttach(spec), k.reserved.refuse(spec))
	if err == nil && lacks && k.lacks != "" {
		err = errors.New(k.lacks)
	}
	var r Runtime
	if err == nil {
		cfg.Env = k.reserved.without(cfg.Env)
		r, err = k.adapter(cfg, &client{http: &http.Client{Transport: cfg.Transport}})
	}
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", spec.Kind, err)
	}
	return r, nil
}

// over reports whether ctx has ended, or its deadline has passed: a dial may fail at the deadline before ctx ends.
func over(ctx context.Context) bool {
	deadline, set := ctx.Deadline()
	return ctx.Err() != nil || set && !time.Now().Before(deadline)
}

// Finder is a runtime that can report, before its model is there, why its program can't be executed.
type Finder interface{ Find() error }

// Await blocks until the server has generated a token. If ctx ends first it returns the last failure, and a permanent one at once. heard is
// called at the server's first answer of any kind, failed with a failed attempt's reason when that changes, after the first second. Pauses
// grow from 2 to 200 ms, 2 % of the time waited.
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
		if err := bell.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%w; the last try: %w", err, last)
		}
	}
}

// Plain is embedded by adapters and fakes of servers that need no conversion, and have neither adapters nor metrics.
type Plain struct{}

// Request changes nothing.
func (Plain) Request(string, *jsonfield.Object) *api.Error { return nil }

// Failure changes nothing.
func (Plain) Failure(_ string, _ int, body []byte) []byte { return body }

// Reload is not supported.
func (Plain) Reload(context.Context, api.Endpoint) error {
	return fmt.Errorf("reload the weights: the runtime loads them only at its start: %w", errors.ErrUnsupported)
}

// LoadAdapter is not supported.
func (Plain) LoadAdapter(context.Context, api.Endpoint, api.Adapter) error {
	return fmt.Errorf("load an adapter: the runtime takes none while it runs: %w", errors.ErrUnsupported)
}

// UnloadAdapter is not supported.
func (Plain) UnloadAdapter(context.Context, api.Endpoint, api.ModelName) error {
	return fmt.Errorf("unload an adapter: the runtime takes none while it runs: %w", errors.ErrUnsupported)
}

// Signals is not supported.
func (Plain) Signals(context.Context, api.Endpoint) (Signals, error) {
	return Signals{}, fmt.Errorf("read the runtime's metrics: it has none: %w", errors.ErrUnsupported)
}

// stillInUse matches what each of vLLM's workers prints once asleep. The second number covers its whole GPU, including other processes.
var stillInUse = lazyregexp.New(`Sleep mode .*freed -?[0-9.]+ GiB memory, ([0-9.]+) GiB memory is still in use`)

// StillInUse reads a GPU's used memory, by any process, from the line that a server prints after it has fallen asleep.
func StillInUse(line []byte) (used api.Bytes, said bool) {
	if !bytes.Contains(line, []byte("still in use")) {
		return 0, false
	}
	match := stillInUse().FindSubmatch(line)
	if match == nil {
		return 0, false
	}
	gib, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil || !(gib >= 0 && gib < float64(api.MaxDeviceMemory/api.GiB)) {
		return 0, false
	}
	return api.Bytes(gib * float64(api.GiB)), true
}

// noRoom are servers' messages about too little free GPU memory; the last is vLLM's where another process changed it meanwhile.
const noRoom = `
cuda … out of memory
torch.outofmemoryerror
hip out of memory
free memory on device … is less than desired
no available memory for the cache blocks
not enough memory … mem-fraction-static
unable to allocate … buffer
failed to allocate … buffer
error in memory profiling … not properly clean
`

// NoRoom returns the first line of a server's output about too little free GPU memory; empty: there is none.
func NoRoom(output string) string { return saying(output, noRoom) }

// isForm reports whether a body is a multipart form (RFC 7578): no JSON begins with two dashes.
func isForm(body []byte) bool { return bytes.HasPrefix(body, []byte("--")) }

// setInForm replaces a field's values in a multipart form by change's results; it returns anything else unchanged.
func setInForm(body []byte, name string, change func(string) string) []byte {
	first, _, found := bytes.Cut(body, []byte("\r\n"))
	if !found {
		return body
	}
	between := append([]byte("\r\n"), first...)
	var out []byte // body[:done], changed; nil: nothing was
	done := 0
	for at := len(first) + len("\r\n"); at < len(body); {
		end := bytes.Index(body[at:], between)
		if end < 0 {
			break // the form is cut; its reader reports that
		}
		end += at
		if from := partValue(body[at:end], name); from >= 0 {
			old := string(body[at+from : end])
			if fresh := change(old); fresh != old {
				out = append(append(out, body[done:at+from]...), fresh...)
				done = end
			}
		}
		at = end + len(between)
		if rest := body[at:]; bytes.HasPrefix(rest, []byte("--")) || !bytes.HasPrefix(rest, []byte("\r\n")) {
			break // the last part
		}
		at += len("\r\n")
	}
	if out == nil {
		return body
	}
	return append(out, body[done:]...)
}

// partValue returns where the value begins in a part that is the named field, else -1.
func partValue(part []byte, name string) int {
	head, _, found := bytes.Cut(part, []byte("\r\n\r\n"))
	if !found {
		return -1
	}
	for line := range strings.SplitSeq(string(head), "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(key)) != "Content-Disposition" {
			continue
		}
		kind, params, err := mime.ParseMediaType(value)
		if _, file := params["filename"]; err == nil && kind == "form-data" && params["name"] == name && !file {
			return len(head) + len("\r\n\r\n")
		}
	}
	return -1
}
