package vllmsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// Server is one simulated model server. It is an [http.Handler].
type Server struct {
	// may be set at any time
	Faults Faults

	cfg     Config
	kind    simulated
	engine  *engine
	metrics *metrics
	routes  http.Handler
	ready   chan struct{}
	run     atomic.Pointer[context.Context]
	begun   time.Time
	ids     atomic.Int64
	fallen  atomic.Bool // it plays dead

	memory memory
	kv     int64 // in bytes; set before ready

	mu       sync.Mutex // guards adapters and scaled
	adapters []Adapter
	scaled   int // index of llama-server's adapter that speaks; negative: none
}

// New checks a configuration. Nothing runs until [Server.Run].
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, kind: servers[cfg.Surface], ready: make(chan struct{}), metrics: newMetrics(cfg), begun: time.Now(), scaled: -1}
	s.engine = newEngine(cfg, s.metrics)
	if err := s.Faults.Set(cfg.Faults...); err != nil {
		return nil, err
	}
	s.routes = s.handler()
	return s, nil
}

// Ready is closed when the model is loaded.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run loads the model and steps the engine until ctx ends, which is no error, or the engine dies. It gives all memory
// back. Call it once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.run.Store(&ctx)
	defer func() { s.engine.publisher.close() }()
	defer func() {
		if s.memory != nil {
			_ = s.memory.close()
		}
	}()
	if err := s.load(ctx); err != nil {
		if ctx.Err() != nil && !errors.Is(err, device.ErrOutOfMemory) {
			return nil
		}
		return err
	}
	close(s.ready)
	s.engine.loop(ctx)
	if ctx.Err() == nil {
		// Waiting requests get their 500 before the process ends, as with vLLM.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		return errDead
	}
	return nil
}

// outlive returns a context that does not end with a client.
func (s *Server) outlive(ctx context.Context) context.Context {
	if run := s.run.Load(); run != nil {
		return *run
	}
	return ctx
}

func (s *Server) load(ctx context.Context) error {
	logf(s.cfg.Log, "INFO", "api_server.py:1800", "vLLM API server version 0.26.0 (simulated)")
	if err := s.place(); err != nil {
		return err
	}
	if err := s.engine.pass(ctx, s.engine.duration(s.cfg.LoadTime, float64(s.cfg.Weights)/diskBandwidth)); err != nil {
		return err
	}
	s.kv = max(0, s.share()-s.cfg.Weights-s.cfg.Residue)
	blocks, err := s.blocks()
	if err != nil {
		return err
	}
	if err := s.memory.resize(s.wanted()); err != nil {
		return outOfMemory(err, s.kv)
	}
	if s.engine.publisher, err = listenKV(s.cfg.KVEvents); err != nil {
		return err
	}
	s.engine.open(blocks)
	s.mu.Lock()
	s.adapters = append([]Adapter(nil), s.cfg.Adapters...)
	if s.cfg.Surface == LlamaCpp && len(s.adapters) > 0 {
		s.scaled = 0
	}
	s.mu.Unlock()
	return nil
}

// place includes vLLM's check of a start.
func (s *Server) place() error {
	m, err := openMemory(s.cfg)
	if errors.Is(err, device.ErrNoDevice) {
		return startError{"RuntimeError: No CUDA GPUs are available: " + err.Error()}
	}
	if err != nil {
		return err
	}
	s.memory = m
	s.engine.lost = m.lost
	free, total := m.room()
	if s.cfg.Surface == VLLM && float64(free) < s.cfg.Utilization*float64(total) {
		return startError{fmt.Sprintf("ValueError: Free memory on device cuda:0 (%s/%s GiB) on startup is less than desired GPU memory utilization (%g, %s GiB). "+
			"Decrease GPU memory utilization or reduce GPU memory used by other processes.",
			gib(free), gib(total), s.cfg.Utilization, gib(s.share()))}
	}
	if err := m.resize(s.cfg.Residue + s.cfg.Weights); err != nil {
		return outOfMemory(err, s.cfg.Weights)
	}
	return nil
}

// llama-server takes the memory that it needs; the others a share of the device.
func (s *Server) share() int64 {
	if s.cfg.Surface == LlamaCpp {
		return s.cfg.Residue + s.cfg.Weights + int64(s.cfg.MaxModelLen)*kvTokenBytes
	}
	_, total := s.memory.room()
	return int64(s.cfg.Utilization * float64(total))
}

func (s *Server) blocks() (int, error) {
	tokens := s.kv / kvTokenBytes
	if tokens < blockTokens {
		return 0, startError{"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."}
	}
	if tokens < int64(s.cfg.MaxModelLen) && s.cfg.Surface == VLLM {
		return 0, startError{fmt.Sprintf("ValueError: To serve at least one request with the models's max seq len (%d), (%s GiB KV cache is needed, which is larger than the available KV cache memory (%s GiB). "+
			"Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
			s.cfg.MaxModelLen, gib(int64(s.cfg.MaxModelLen)*kvTokenBytes), gib(s.kv))}
	}
	return int(min(tokens/blockTokens, 1<<20)), nil
}

// startError is the last line of a Python traceback.
type startError struct{ text string }

func (e startError) Error() string { return e.text }

func outOfMemory(err error, wanted int64) error {
	if errors.Is(err, device.ErrOutOfMemory) {
		return startError{fmt.Sprintf("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s GiB. %v", gib(wanted), err)}
	}
	return err
}

func (s *Server) crash() {
	if s.cfg.Kill != nil {
		s.cfg.Kill()
		return
	}
	s.fallen.Store(true)
	s.engine.mu.Lock()
	s.engine.die("the process has ended")
	s.engine.mu.Unlock()
}

type memory interface {
	room() (free, total int64)
	resize(bytes int64) error
	lost() bool
	close() error
}

func openMemory(cfg Config) (memory, error) {
	if cfg.Device.Dir == "" {
		return &ownMemory{total: cmp.Or(cfg.Device.Memory, 80<<30)}, nil
	}
	c, err := device.Open(cfg.Device)
	if err != nil {
		return nil, err
	}
	return sharedMemory{c}, nil
}

type ownMemory struct {
	total int64
	used  atomic.Int64
}

func (m *ownMemory) room() (free, total int64) { return m.total - m.used.Load(), m.total }
func (m *ownMemory) lost() bool                { return false }
func (m *ownMemory) close() error              { return nil }
func (m *ownMemory) resize(bytes int64) error {
	if bytes > m.total {
		return fmt.Errorf("%d of %d bytes: %w", bytes, m.total, device.ErrOutOfMemory)
	}
	m.used.Store(bytes)
	return nil
}

type sharedMemory struct{ client *device.Client }

func (m sharedMemory) lost() bool               { return m.client.Lost() }
func (m sharedMemory) close() error             { return m.client.Close() }
func (m sharedMemory) resize(bytes int64) error { return m.client.Resize(bytes) }
func (m sharedMemory) room() (free, total int64) {
	d, err := m.client.Device()
	if err != nil {
		return 0, 0
	}
	return max(0, d.Free()), d.Memory
}

func logf(w io.Writer, level, where, format string, args ...any) {
	fmt.Fprintf(w, "%s %s [%s] %s\n", level, time.Now().Format("01-02 15:04:05"), where, fmt.Sprintf(format, args...))
}
