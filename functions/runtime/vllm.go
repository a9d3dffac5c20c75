package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
)

// vllm runs "vllm serve" on a Unix socket (--uds). Its sleep mode is on, unless --no-enable-sleep-mode is set, or vLLM has refused it for
// its platform (a CPU): then its process is stopped. It can't go from level 1 to 2 without a wake.
//
// Sleep needs vLLM's developer mode, which also opens calls that run code: clients must not reach the port.
type vllm struct {
	server
	publisher
	sleeps   atomic.Bool
	lora     bool
	external bool // a connector keeps its KV cache elsewhere too
	started  atomic.Pointer[started]
}

var vllmReserved = because(
	noAddress, "--host --port --uds",
	noTLS, "--grpc --grpc-port --ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-cert-reqs --ssl-ciphers --enable-ssl-refresh",
	useModel, "--model", useNames, "--served-model-name", noKey, "--api-key VLLM_API_KEY",
	noTools, "--tool-server", noFiles, "--allowed-local-media-path", mediaHost, "--allowed-media-domains",
	"a redirect leads to hosts that nobody has named; remove it", "VLLM_MEDIA_URL_ALLOW_REDIRECTS",
	"the function needs vLLM's API server; remove it", "--headless",
	"vLLM's snapshots know neither Unix sockets nor adapters, and what sleeps is the function's to say; remove it", "--snapshot-config --sleep-mode-backend",
	"it is on where vLLM's sleep mode is; set the option --no-enable-sleep-mode to have neither", "VLLM_SERVER_DEV_MODE",
	"it is on where the function has a folder of adapters; set that instead", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
)

func newVLLM(cfg Config, c *client) (Runtime, error) {
	spec := cfg.Spec
	// A Kubernetes Service named vllm sets VLLM_PORT, which vLLM takes for its own.
	cfg.Env = slices.DeleteFunc(cfg.Env, func(kv string) bool { return strings.HasPrefix(kv, "VLLM_PORT=tcp://") })
	p, args, err := publish(spec.Args, cfg.Dir, has(spec.Args, "--data-parallel-size", "-dp"))
	if err != nil {
		return nil, err
	}
	cfg.Spec.Args = args
	r := &vllm{
		publisher: p,
		server:    newServer(cfg, c, spec.Endpoint != ""),
		external:  has(spec.Args, "--kv-offloading-size", "--kv-transfer-config"),
		lora:      spec.AdapterRoot != "" || len(spec.Adapters) > 0 || has(spec.Args, "--enable-lora") || spec.Endpoint != "",
	}
	r.started.Store(&started{})
	r.sleeps.Store(!has(spec.Args, "--no-enable-sleep-mode"))
	return r, nil
}

func (r *vllm) Traits() Traits {
	return Traits{Reuses: true, Sleeps: r.sleeps.Load(), Adapts: r.lora, Room: r.room(), Brings: r.cfg.Spec.Endpoint != "" || has(r.cfg.Spec.Args, "--lora-modules")}
}

const noSleepMode = "sleep mode is not supported on current platform"

// Yield never drops a user's own --enable-sleep-mode.
func (r *vllm) Yield(output string) string {
	if !r.sleeps.Load() || has(r.cfg.Spec.Args, "--enable-sleep-mode") || saying(output, noSleepMode) == "" {
		return ""
	}
	r.sleeps.Store(false)
	return "vLLM has no sleep mode on this platform: it is stopped and started again where others sleep and wake"
}

func (r *vllm) Dying(status int, body []byte) bool {
	return (&statusError{status: status, message: string(body)}).Dying()
}

// room is how many adapters vLLM keeps, in host memory or on the device, whichever is more. A server that somebody else starts reads
// dropped ones again.
func (r *vllm) room() int {
	if !r.lora || r.cfg.Spec.Endpoint != "" {
		return 0
	}
	onDevice := numberOf(r.cfg.Spec.Args, "--max-loras", 1)
	return max(onDevice, numberOf(r.cfg.Spec.Args, "--max-cpu-loras", onDevice))
}

func (r *vllm) Launch(model string) (Launch, error) {
	r.fresh()
	if l, attached := r.attached(); attached {
		r.sleeps.Store(true) // another server may listen there by now
		return l, nil
	}
	e, path, err := r.cfg.socket("vllm")
	if err != nil {
		return Launch{}, err
	}
	r.started.Store(&started{model: model, times: r.started.Load().times + 1})
	model, revision := hub(model)
	args := slices.Concat([]string{model, "--served-model-name"}, r.clients, []string{"--uds", path}, mediaDomains(r.cfg.Spec.MediaHosts))
	if revision != "" {
		args = append(args, "--revision", revision)
	}
	env := append(sharedMemoryEnv(sharedMemory()), "VLLM_MEDIA_URL_ALLOW_REDIRECTS=0")
	if r.sleeps.Load() {
		args, env = append(args, "--enable-sleep-mode"), append(env, "VLLM_SERVER_DEV_MODE=1")
	}
	if r.lora {
		args, env = append(args, "--enable-lora"), append(env, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
	}
	if r.cfg.Devices > 1 && !has(r.cfg.Spec.Args, "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp") {
		args = append(args, "--tensor-parallel-size", strconv.Itoa(r.cfg.Devices))
	}
	return r.launch(e, args, env)
}

type started struct {
	model string
	times uint64
}

func (r *vllm) Started() (model string, times uint64) {
	s := r.started.Load()
	return s.model, s.times
}

// hub splits hf://org/name@revision into what model servers accept. Other references stay.
func hub(model string) (name, revision string) {
	rest, found := strings.CutPrefix(model, "hf://")
	if !found {
		return model, ""
	}
	name, revision, _ = strings.Cut(rest, "@")
	return name, revision
}

// sharedMemoryEnv keeps NCCL from too little shared memory (a container's default is 64 MiB), where collectives fail.
func sharedMemoryEnv(size api.Bytes, known bool) []string {
	if known && size < api.GiB {
		return []string{"NCCL_SHM_DISABLE=1"}
	}
	return nil
}

func (r *vllm) Probe(ctx context.Context, e api.Endpoint) error {
	if err := r.meet(ctx, e); err != nil {
		return err
	}
	return r.server.Probe(ctx, e)
}

// meet wakes a sleeping server that somebody else starts, in which requests would wait forever. Its level is unknown (engine_sleep_state
// has the last call's); a wake from level 2 works for 1 too.
func (r *vllm) meet(ctx context.Context, e api.Endpoint) error {
	if r.cfg.Spec.Endpoint == "" || !r.sleeps.Load() {
		return nil
	}
	mode := r.sleepMode()
	asleep, err := mode.asleep(ctx, e, false)
	if err == nil && asleep {
		err = mode.rouse(ctx, e, api.Level2)
	}
	return err
}

func (r *vllm) sleepMode() sleepMode {
	return sleepMode{client: r.client, reload: r.reloadAdapters, external: r.external}
}

func (r *vllm) Sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	err := sleepMode{client: r.client}.sleep(ctx, e, level)
	if errors.Is(err, errors.ErrUnsupported) {
		r.sleeps.Store(false)
	}
	return err
}

func (r *vllm) Wake(ctx context.Context, e api.Endpoint, level api.Level, serves func()) (Answer, error) {
	return r.sleepMode().wake(ctx, e, level, r.Canary, serves)
}

func (r *vllm) Reload(ctx context.Context, e api.Endpoint) error {
	return r.sleepMode().again(ctx, e)
}

// reloadAdapters loads all again: vLLM does not know that the device's copies were dropped with the weights.
func (r *vllm) reloadAdapters(ctx context.Context, e api.Endpoint) error {
	if !r.lora {
		return nil
	}
	var list models
	if err := r.client.ask(ctx, http.MethodGet, e, "/v1/models", nil, &list); err != nil {
		return err
	}
	for _, m := range list.Data {
		if m.Parent == "" {
			continue
		}
		if err := r.UnloadAdapter(ctx, e, m.ID); err != nil {
			return fmt.Errorf("load adapter %s again after the sleep: %w", m.ID, err)
		}
		if err := r.LoadAdapter(ctx, e, api.Adapter{Name: m.ID, Path: m.Root}); err != nil {
			return fmt.Errorf("load adapter %s again after the sleep: %w", m.ID, err)
		}
	}
	return nil
}

func (r *vllm) LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error {
	if !r.lora {
		return fmt.Errorf("the function declares no adapters and no folder of adapters, so vLLM was started without them; set one: %w", errors.ErrUnsupported)
	}
	return withoutLoRA(r.client.loadAdapter(ctx, e, a, "already been loaded", "already loaded"))
}

func (r *vllm) UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error {
	return withoutLoRA(r.client.unloadAdapter(ctx, e, name, "cannot be found"))
}

func withoutLoRA(err error) error {
	if noRoute(err) {
		return fmt.Errorf("start vLLM with --enable-lora, and with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment: %w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// noRoute reports FastAPI's answer for an unknown path: a handler's own 404 looks different.
func noRoute(err error) bool {
	return Missing(err) && says(err, `"detail":"not found"`, `"detail":"method not allowed"`)
}

func (r *vllm) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	s, err := scrape(ctx, r.client, e, vllmMetrics)
	if err == nil && s.MaxAdapters == 0 && r.lora && r.cfg.Spec.Endpoint == "" {
		s.MaxAdapters = numberOf(r.cfg.Spec.Args, "--max-loras", 1) // vLLM's default
	}
	return s, err
}
