// Package runtime knows the model servers: how each starts, listens, sleeps, wakes, loads adapters and reports its load,
// and how its HTTP differs from the OpenAI API. It starts no process and keeps no state of an instance; package supervise does.
//
// A runtime is used in this order, by one goroutine at a time except for its [Dialect] and [Runtime.Signals]:
//
//  1. [Runtime.Launch] returns the command line and the endpoint of one start.
//  2. If the launch announces itself, that line of output ends the start.
//  3. Else [Runtime.Probe] is called until it has computed one token: health paths answer too early.
//  4. [Runtime.Sleep], of a drained server, and [Runtime.Wake] are called, if [Traits] allow it.
//
// A server that another process of the same instance has launched is used from step 3 on.
//
// Servers have calls that need no key and can do anything, so only this instance may reach them.
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
	// Announce begins the output line that says that the runtime listens and has generated a token; empty: it needs a probe.
	Announce string
}

// Traits tell a supervisor about a runtime.
type Traits struct {
	// Reuses: a connection carries further requests, in order, and idle ones delay nobody.
	Reuses bool
	// Sleeps in place; else the process is stopped.
	Sleeps bool
	// Deepens from level 1 to 2 without a wake.
	Deepens bool
	// Adapts: LoRA adapters can be loaded and unloaded while it runs.
	Adapts bool
	// Brings: it may list adapters that the function does not know of.
	Brings bool
	// Readiness: its probe decides whether it gets requests, also after the start, without a restart.
	Readiness bool
	// Room is how many adapters it keeps besides those in its options; 0: unknown or unbounded; negative: none.
	Room int
}

// Runtime is one kind of model server. Calls end when their context ends.
type Runtime interface {
	Dialect
	Traits() Traits
	// Launch takes the reference as declared, or the path of the fetched file or folder.
	Launch(model string) (Launch, error)
	// Probe generates one token. It fails while the server is not there or loads.
	Probe(ctx context.Context, e api.Endpoint) error
	// Sleep puts an idle server to sleep, or deepens its sleep.
	Sleep(ctx context.Context, e api.Endpoint, level api.Level) error
	// Canary asks an awake server as an adapter, or as the model if the name is empty. It is a probe with an empty answer if there is no
	// canary, or the server refuses it.
	Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error)
	// Wake blocks until the server has answered the canary as the model; the caller judges the answer. serves, if not nil, is called if the
	// server accepts requests before that.
	Wake(ctx context.Context, e api.Endpoint, level api.Level, serves func()) (Answer, error)
	// Reload makes an awake server load its weights again, and forget what it computed. [errors.ErrUnsupported]: only a new start does.
	Reload(ctx context.Context, e api.Endpoint) error
	// LoadAdapter loads a LoRA adapter into an awake server, unless it is loaded. [errors.ErrUnsupported]: it can't while it runs.
	LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error
	// UnloadAdapter unloads an adapter, if it is loaded.
	UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error
	// Signals reads the server's load. [errors.ErrUnsupported]: it has no metrics, and the caller must count.
	Signals(ctx context.Context, e api.Endpoint) (Signals, error)
}

// Mover is a [Runtime] whose requests can continue at another instance ([control.HeaderState]).
type Mover interface {
	// Move is Sleep that ends such requests between two steps.
	Move(ctx context.Context, e api.Endpoint, level api.Level) error
}

// Tellable is a [Runtime] whose streams can continue elsewhere: it reports token IDs and accepts them as a prompt.
type Tellable interface {
	// Started returns the last start's model, and the number of starts; empty: this process has not started it.
	Started() (model string, times uint64)
}

// Keeper is a [Runtime] whose server may keep its prefix cache while it sleeps.
type Keeper interface {
	// Kept returns how many tokens the last sleep kept. It does not block.
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

// Dialect converts between a server's HTTP and the clients'. Its methods are safe for many goroutines,
// and change only their arguments.
type Dialect interface {
	// Request converts the body of a client's request, JSON or not. An error is the client's fault.
	Request(path string, body *jsonfield.Object) *api.Error
	// Failure converts an answer from status 400 into an OpenAI error body.
	Failure(path string, status int, body []byte) []byte
}

// Config describes the runtime.
type Config struct {
	Spec    api.Runtime
	Model   api.ModelName
	Aliases []api.ModelName
	// Dir is the instance's, for sockets and other files.
	Dir string
	// Concurrency bounds concurrent requests; 0: the runtime's default.
	Concurrency int
	// MaxBody bounds bodies; 0: 64 MiB.
	MaxBody api.Bytes
	// Port is for servers of the kinds command and http that cannot be told one; 0: they get one.
	Port int
	// ProbePath answers with success when a server of the kind http is ready; empty: an open port is enough.
	ProbePath string
	// ProbeCommand, if not empty, replaces ProbePath.
	ProbeCommand []string
	// Devices is the number of GPUs; 0: none, or unknown.
	Devices int
	// Instance is unique on the machine.
	Instance string
	Alone    bool // it shares no server with other instances
	// CanaryTokens; 0: no canary. Our own engine generates one.
	CanaryTokens int
	// Engine is the program of "engine serve".
	Engine string
	// Tiles is the folder for our engine's repacked weights, which its processes share; "": its default.
	Tiles string
	// Env is inherited; Spec.Env is added to it.
	Env       []string
	Transport http.RoundTripper
}

var kinds = map[string]struct {
	reserved reserved
	// lacks says what a runtime without model, command and endpoint needs; empty: its adapter checks it.
	lacks string
	// options name a model too.
	options []string
	command string // up to the options
	adapter func(Config, *client) (Runtime, error)
}{
	api.RuntimeEngine: {engineReserved, "", nil, "", newEngine},
	api.RuntimeVLLM:   {vllmReserved, noFolder, nil, "vllm serve", newVLLM},
	api.RuntimeSGLang: {sglangReserved, noFolder, nil, "python3 -m sglang.launch_server", newSGLang},
	api.RuntimeOllama: {ollamaReserved, "", nil, "ollama serve", newOllama},
	api.RuntimeLlamaCpp: {llamaCppReserved, "no model; set the model's reference, such as the path of a GGUF file or hf://org/name",
		[]string{"-hf", "-hfr", "--hf-repo", "-mu", "--model-url", "-dr", "--docker-repo"}, "llama-server", newLlamaCpp},
	api.RuntimeRayServe: {rayReserved, "no application; set the model's reference to an import path (module:app) or a configuration file", nil, "ray", newRayServe},
	api.RuntimeCommand:  {nil, "no command line; give the server's command, with $(SOCKET) where the path of its socket goes, or $(PORT) where the port goes", nil, "", newCommand},
	api.RuntimeHTTP:     {nil, "no command line; give the server's command, with $(PORT) where the port goes", nil, "", newHTTP},
}

const noFolder = "no model; set the model's reference, such as hf://org/name or the path of a folder"

// Command returns the words that start a runtime, up to our options; empty: our own engine, or a server that somebody else starts.
func Command(spec api.Runtime) []string {
	switch {
	case spec.Endpoint != "":
		return nil
	case len(spec.Command) > 0:
		return spec.Command
	}
	return strings.Fields(kinds[spec.Kind].command)
}

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
		cfg.Env, cfg.Spec.Command = k.reserved.without(cfg.Env), Command(spec)
		r, err = k.adapter(cfg, &client{http: &http.Client{Transport: cfg.Transport}})
	}
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", spec.Kind, err)
	}
	return r, nil
}

// over reports also a passed deadline, at which a dial may fail before ctx ends.
func over(ctx context.Context) bool {
	deadline, set := ctx.Deadline()
	return ctx.Err() != nil || set && !time.Now().Before(deadline)
}

// Finder is a runtime that can report, before its model is there, why its program can't be executed.
type Finder interface{ Find() error }

// Await blocks until the server has generated a token. It returns the last failure when ctx ends, a permanent one at once. heard is called
// at the first answer of any kind, failed after the first second when the reason changes. Pauses are 2 % of the time waited, from 2 to 200
// ms.
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

// Plain is embedded by adapters and fakes of servers without conversion, adapters and metrics.
type Plain struct{}

// Request changes nothing.
func (Plain) Request(string, *jsonfield.Object) *api.Error { return nil }

// Failure changes nothing.
func (Plain) Failure(_ string, _ int, body []byte) []byte { return body }

// Reload is not supported.
func (Plain) Reload(context.Context, api.Endpoint) error {
	return fmt.Errorf("reload the weights: the runtime loads them only at its start: %w", errors.ErrUnsupported)
}

// Sleep is not supported.
func (Plain) Sleep(context.Context, api.Endpoint, api.Level) error {
	return fmt.Errorf("put the server to sleep in place: it can only be stopped: %w", errors.ErrUnsupported)
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

// stillInUse matches what vLLM's workers print once asleep. The second number covers the whole GPU, with other processes.
var stillInUse = lazyregexp.New(`Sleep mode .*freed -?[0-9.]+ GiB memory, ([0-9.]+) GiB memory is still in use`)

// StillInUse reads a GPU's used memory from the line that a server prints once asleep.
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

// NoRoom returns the first line of output about too little free GPU memory, or "".
func NoRoom(output string) string { return saying(output, noRoom) }

// isForm: no JSON begins with the two dashes of a multipart form (RFC 7578).
func isForm(body []byte) bool { return bytes.HasPrefix(body, []byte("--")) }

// setInForm replaces a field's values in a multipart form by change's results.
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

// partValue returns where the named field's value begins in a part, else -1.
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
