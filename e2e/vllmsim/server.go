package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// Server is one simulated model server. It is an [http.Handler].
type Server struct {
	// Faults break it; they may be set at any time.
	Faults Faults

	cfg     Config
	engine  *engine
	metrics *metrics
	routes  http.Handler
	ready   chan struct{}
	run     atomic.Pointer[context.Context]
	begun   time.Time
	ids     atomic.Int64
	serving atomic.Int64
	fallen  atomic.Bool // it plays dead

	memory memory
	// weights and kv are bytes on each device; set before ready.
	weights, kv int64

	mu       sync.Mutex // guards adapters and scaled
	adapters []Adapter
	scaled   int // of llama-server: the adapter that speaks, counted from 1
}

// New checks a configuration. Nothing is held and nothing runs until [Server.Run].
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, ready: make(chan struct{}), metrics: newMetrics(cfg), begun: time.Now()}
	s.engine = newEngine(cfg, s.metrics)
	if err := s.Faults.Set(cfg.Faults...); err != nil {
		return nil, err
	}
	s.routes = s.surface()
	return s, nil
}

// Ready is closed when the model is loaded.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Devices lists the devices of a folder and the processes that use them.
func Devices(dir string) ([]device.Device, error) { return device.List(dir) }

// Run loads the model and steps the engine until ctx ends, which is no error, or
// the engine dies. It gives all memory back. Call it once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.run.Store(&ctx)
	defer func() { s.engine.publisher.close() }()
	defer func() {
		if s.memory != nil {
			_ = s.memory.close() // an error has no reader
		}
	}()
	if f, found := s.Faults.happens("exit-after"); found {
		d, _ := time.ParseDuration(f.value) // checked when it was parsed
		timer := time.AfterFunc(d, func() { s.crash("1") })
		defer timer.Stop()
	}
	if err := s.load(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, device.ErrOutOfMemory) {
			return nil
		}
		return err
	}
	close(s.ready)
	s.engine.loop(ctx)
	if ctx.Err() == nil {
		// What waits for an answer gets its 500 before the process ends, as with vLLM.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		return errDead
	}
	return nil
}

// outlive is a context that goes on when the client of a call leaves.
func (s *Server) outlive(ctx context.Context) context.Context {
	if run := s.run.Load(); run != nil {
		return *run
	}
	return ctx
}

// load takes memory and lets the time of a start pass.
func (s *Server) load(ctx context.Context) error {
	logf(s.cfg.Log, "INFO", "api_server.py:1800", "vLLM API server version %s (simulated)", Version)
	if _, found := s.Faults.happens("oom-start"); found {
		return startError{fmt.Sprintf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s GiB. GPU 0 has a total capacity of %s GiB of which 0 bytes is free.",
			gib(s.cfg.Weights), gib(80<<30))}
	}
	if err := s.place(ctx); err != nil {
		return err
	}
	begin := time.Now()
	total := s.engine.duration(s.cfg.LoadTime, float64(s.cfg.Weights)/s.cfg.DiskBandwidth)
	const shards = 4
	_, never := s.Faults.happens("never-ready")
	for i := range shards {
		progress(s.cfg.Log, i, shards)
		if never {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if err := s.engine.pass(ctx, total/shards); err != nil {
			return err
		}
	}
	progress(s.cfg.Log, shards, shards)
	logf(s.cfg.Log, "INFO", "gpu_model_runner.py:2392", "Model loading took %s GiB and %.6f seconds", gib(s.weights), time.Since(begin).Seconds())
	s.kv = max(0, s.share()-s.weights-s.cfg.Residue-s.cfg.Graphs)
	blocks, err := s.blocks()
	if err != nil {
		return err
	}
	if err := s.memory.resize(s.wanted()); err != nil {
		return outOfMemory(err, s.kv)
	}
	logf(s.cfg.Log, "INFO", "gpu_worker.py:298", "Available KV cache memory: %s GiB", gib(s.kv))
	logf(s.cfg.Log, "INFO", "kv_cache_utils.py:1087", "GPU KV cache size: %d tokens", blocks*s.cfg.BlockTokens)
	if s.engine.publisher, err = listenKV(s.cfg); err != nil {
		return err
	}
	s.engine.open(blocks)
	s.mu.Lock()
	s.adapters = append([]Adapter(nil), s.cfg.Adapters...)
	if s.cfg.Surface == LlamaCpp && len(s.adapters) > 0 {
		s.scaled = 1
	}
	s.mu.Unlock()
	return nil
}

// place opens the devices and takes the memory of the weights, with vLLM's check of a start.
func (s *Server) place(ctx context.Context) error {
	m, err := openMemory(s.cfg)
	if errors.Is(err, device.ErrNoDevice) {
		return startError{"RuntimeError: No CUDA GPUs are available: " + err.Error()}
	}
	if err != nil {
		return err
	}
	s.memory = m
	s.engine.lost = m.lost
	if err := s.fork(ctx, m); err != nil {
		return err
	}
	free, total := m.room()
	if s.cfg.Surface == VLLM && float64(free) < s.cfg.Utilization*float64(total) {
		return startError{fmt.Sprintf("ValueError: Free memory on device cuda:0 (%s/%s GiB) on startup is less than desired GPU memory utilization (%g, %s GiB). "+
			"Decrease GPU memory utilization or reduce GPU memory used by other processes.",
			gib(free), gib(total), s.cfg.Utilization, gib(s.share()))}
	}
	s.weights = s.cfg.Weights / int64(s.cfg.TensorParallel)
	if err := m.resize(s.cfg.Residue+s.weights, 0); err != nil {
		return outOfMemory(err, s.weights)
	}
	return nil
}

// fork starts the process that holds the memory, if there is to be one.
func (s *Server) fork(ctx context.Context, m memory) error {
	if s.cfg.EngineCore == nil {
		return nil
	}
	shared, is := m.(*sharedMemory)
	var hold *os.File
	if is {
		hold = shared.client.File()
	}
	child, err := s.cfg.EngineCore(hold)
	if err != nil {
		return fmt.Errorf("start EngineCore: %w", err)
	}
	go func() { // ends with the process that it waits for, or with the engine
		select {
		case <-child.Ended:
			s.engine.mu.Lock()
			s.engine.die("the engine's process has ended")
			s.engine.mu.Unlock()
		case <-s.engine.died:
		case <-ctx.Done():
		}
	}()
	if is {
		return shared.client.Hand(child.PID)
	}
	return nil
}

// share is what one device gives this server while it is awake. llama-server
// takes what it needs; the others a part of the device.
func (s *Server) share() int64 {
	if s.cfg.Surface == LlamaCpp || s.cfg.Blocks > 0 {
		tokens := int64(s.cfg.Blocks * s.cfg.BlockTokens)
		if tokens == 0 {
			tokens = int64(s.cfg.MaxModelLen)
		}
		return s.cfg.Residue + s.weights + tokens*s.cfg.KVTokenBytes/int64(s.cfg.TensorParallel)
	}
	_, total := s.memory.room()
	return int64(s.cfg.Utilization * float64(total))
}

// blocks is the number of KV blocks that memory allows.
func (s *Server) blocks() (int, error) {
	if s.cfg.Blocks > 0 {
		return s.cfg.Blocks, nil
	}
	tokens := s.kv * int64(s.cfg.TensorParallel) / s.cfg.KVTokenBytes
	if tokens < int64(s.cfg.BlockTokens) {
		return 0, startError{"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."}
	}
	if tokens < int64(s.cfg.MaxModelLen) && s.cfg.Surface == VLLM {
		return 0, startError{fmt.Sprintf("ValueError: To serve at least one request with the models's max seq len (%d), (%s GiB KV cache is needed, which is larger than the available KV cache memory (%s GiB). "+
			"Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
			s.cfg.MaxModelLen, gib(int64(s.cfg.MaxModelLen)*s.cfg.KVTokenBytes), gib(s.kv))}
	}
	return int(min(tokens/int64(s.cfg.BlockTokens), 1<<20)), nil
}

// startError is a start that fails with the last line of a Python traceback.
type startError struct{ text string }

func (e startError) Error() string { return e.text }

func outOfMemory(err error, wanted int64) error {
	if errors.Is(err, device.ErrOutOfMemory) {
		return startError{fmt.Sprintf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s GiB. %v", gib(wanted), err)}
	}
	return err
}

// crash ends the process: with an exit status, or by a signal (SIGKILL if how is empty).
func (s *Server) crash(how string) {
	if s.cfg.Exit == nil {
		s.fallen.Store(true)
		s.engine.mu.Lock()
		s.engine.die("the process has ended")
		s.engine.mu.Unlock()
		return
	}
	if code, err := strconv.Atoi(how); err == nil {
		s.cfg.Exit(code)
		return
	}
	signal, found := signals[how]
	if !found {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(os.Getpid(), signal) // it is our own
	time.Sleep(time.Second)               // a signal takes a moment
	s.cfg.Exit(1)
}

// memory is the devices of one server.
type memory interface {
	// room is what is free for it, and all, on the device that has least.
	room() (free, total int64)
	resize(bytes, host int64) error
	held() int64
	// lost says that one of the devices does not exist any more.
	lost() bool
	close() error
}

func openMemory(cfg Config) (memory, error) {
	if cfg.Devices.Dir == "" {
		total := cfg.Devices.Memory
		if total == 0 {
			total = 80 << 30
		}
		return &ownMemory{total: total}, nil
	}
	c, err := device.Open(cfg.Devices)
	if err != nil {
		return nil, err
	}
	return &sharedMemory{client: c}, nil
}

// ownMemory is nobody else's.
type ownMemory struct {
	total int64
	used  atomic.Int64
}

func (m *ownMemory) room() (free, total int64) { return m.total - m.used.Load(), m.total }
func (m *ownMemory) held() int64               { return m.used.Load() }
func (m *ownMemory) lost() bool                { return false }
func (m *ownMemory) close() error              { return nil }
func (m *ownMemory) resize(bytes, _ int64) error {
	if bytes > m.total {
		return fmt.Errorf("%d of %d bytes: %w", bytes, m.total, device.ErrOutOfMemory)
	}
	m.used.Store(bytes)
	return nil
}

// sharedMemory is a part of devices that others use too.
type sharedMemory struct {
	client *device.Client
	used   atomic.Int64
}

func (m *sharedMemory) held() int64  { return m.used.Load() }
func (m *sharedMemory) lost() bool   { return m.client.Lost() }
func (m *sharedMemory) close() error { return m.client.Close() }
func (m *sharedMemory) room() (free, total int64) {
	devices, err := m.client.Devices()
	if err != nil || len(devices) == 0 {
		return 0, 0
	}
	least := devices[0]
	for _, d := range devices[1:] {
		if d.Free() < least.Free() {
			least = d
		}
	}
	return max(0, least.Free()), least.Memory
}

func (m *sharedMemory) resize(bytes, host int64) error {
	if err := m.client.Resize(bytes, host); err != nil {
		return err
	}
	m.used.Store(bytes)
	return nil
}

// Version is the version of vLLM that is simulated.
const Version = "0.26.0"

// logf writes a line as vLLM's logger does.
func logf(w io.Writer, level, where, format string, args ...any) {
	fmt.Fprintf(w, "%s %s [%s] %s\n", level, time.Now().Format("01-02 15:04:05"), where, fmt.Sprintf(format, args...))
}

// progress writes the bar that vLLM shows while it reads weights.
func progress(w io.Writer, done, of int) {
	const width = 20
	bar := ""
	for i := range width {
		if i < width*done/of {
			bar += "#"
		} else {
			bar += " "
		}
	}
	fmt.Fprintf(w, "Loading safetensors checkpoint shards: %3d%% Completed |%s| %d/%d\n", 100*done/of, bar, done, of)
}
