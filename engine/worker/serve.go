package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// Builder opens what a [Load] asks for. The caller closes it.
type Builder struct {
	Model   func(ctx context.Context, l Load) (infer.Inferencer, error)
	Adapter func(path string, c model.Config) (*lora.Adapter, error)
}

// One computes, the others wait.
const batches = 4

type task struct {
	batch   *Batch
	op      Op
	adapter *lora.Adapter
}

// The loop owns a server's fields that name no other owner.
type server struct {
	conn  Conn
	build Builder
	hello Hello       // the engine's
	todo  chan task   // the reader and its helpers send; free bounds the batches
	free  chan *Batch // to reuse: the loop sends, the reader receives

	inf   infer.Inferencer // nil before load
	table table
	step  step
	frame []byte
}

// Serve runs a worker until the peer closes conn or ctx ends, and returns nil. It fails if the peer violates the
// protocol. It closes conn.
func Serve(ctx context.Context, conn Conn, build Builder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &server{conn: conn, build: build, todo: make(chan task), free: make(chan *Batch, batches), table: table{}}
	for range batches {
		s.free <- new(Batch)
	}
	unwatch := context.AfterFunc(ctx, conn.Close)
	defer unwatch()
	if err := s.greet(); err != nil {
		cancel(nil)
		conn.Close()
		return err
	}
	var others sync.WaitGroup
	var read error
	others.Go(func() {
		read = s.read(ctx)
		cancel(io.EOF)
	})
	if s.hello.Heartbeat > 0 {
		others.Go(func() { s.beat(ctx, time.Duration(s.hello.Heartbeat)*time.Millisecond) })
	}
	err := s.loop(ctx, &others)
	cancel(nil)
	conn.Close()
	others.Wait()
	if s.inf != nil {
		err = errors.Join(err, s.inf.Close())
	}
	return errors.Join(err, read)
}

func (s *server) greet() error {
	if err := SendJSON(s.conn, KindHello, Hello{Protocol: Protocol, PID: os.Getpid()}); err != nil {
		return err
	}
	kind, payload, err := s.conn.Receive()
	if err != nil {
		return fmt.Errorf("wait for the engine's hello: %w", err)
	}
	if kind != KindHello || DecodeJSON(payload, &s.hello) != nil {
		return fmt.Errorf("the engine's first frame, of kind %d, is no hello", kind)
	}
	if s.hello.Protocol != Protocol {
		return fmt.Errorf("the engine's protocol version is %d, this worker's is %d: use the same version for both", s.hello.Protocol, Protocol)
	}
	return nil
}

// When read ends, the worker ends.
func (s *server) read(ctx context.Context) error {
	for {
		kind, payload, err := s.conn.Receive()
		if err != nil {
			if err == io.EOF || ctx.Err() != nil {
				return nil
			}
			return err
		}
		var t task
		switch kind {
		case KindBatch:
			select {
			case t.batch = <-s.free:
			case <-ctx.Done():
				return nil
			}
			err = DecodeBatch(payload, t.batch)
		case KindOp:
			err = DecodeJSON(payload, &t.op)
		default:
			err = fmt.Errorf("a frame of kind %d: want a batch or an op", kind)
		}
		if err != nil {
			return err
		}
		if !s.pass(ctx, t) {
			return nil
		}
	}
}

func (s *server) pass(ctx context.Context, t task) bool {
	select {
	case s.todo <- t:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *server) beat(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.conn.Send(KindHeartbeat, nil) != nil {
				return // the reader notices too
			}
		case <-ctx.Done():
			return
		}
	}
}

// loop leaves work without the device to helpers.
func (s *server) loop(ctx context.Context, helpers *sync.WaitGroup) error {
	for {
		var t task
		select {
		case t = <-s.todo:
		case <-ctx.Done():
			return nil
		}
		if t.op.Verb == OpLoadAdapter && t.op.Adapter != nil && t.adapter == nil && s.inf != nil {
			shape := s.inf.Config()
			helpers.Go(func() { s.readAdapter(ctx, t, shape) })
			continue
		}
		if t.batch == nil {
			if err := SendJSON(s.conn, KindReply, s.do(ctx, t)); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		}
		out := s.compute(ctx, t.batch)
		s.free <- t.batch
		if ctx.Err() != nil {
			return nil // the engine has left
		}
		s.frame = AppendOutput(s.frame[:0], out)
		if err := s.conn.Send(KindOutput, s.frame); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (s *server) do(ctx context.Context, t task) Reply {
	r := Reply{ID: t.op.ID}
	if err := s.perform(ctx, t, &r); err != nil {
		r.Error = err.Error()
	}
	return r
}

var errNotLoaded = errors.New("no model is loaded: load one first")

func (s *server) perform(ctx context.Context, t task, r *Reply) (err error) {
	if s.inf == nil && t.op.Verb != OpLoad {
		return errNotLoaded
	}
	switch t.op.Verb {
	case OpLoad:
		r.Info, err = s.load(ctx, t.op.Load)
		return err
	case OpSleep:
		clear(s.table)
		err := s.sleep(t.op.Level, t.op.Keep)
		debug.FreeOSMemory() // also of loading
		return err
	case OpWake:
		clear(s.table)
		return s.inf.Wake(ctx)
	case OpLoadAdapter:
		if t.adapter == nil {
			return errors.New("no adapter is named")
		}
		return s.inf.LoadAdapter(t.op.Adapter.ID, t.adapter)
	case OpUnloadAdapter:
		if t.op.Adapter == nil {
			return errors.New("no adapter is named")
		}
		return s.inf.UnloadAdapter(t.op.Adapter.ID)
	case OpStats:
		r.Memory = s.inf.MemoryBytes()
		return nil
	case OpSaveBlocks:
		r.Sums, err = s.saveBlocks(ctx, t.op.File)
		return err
	case OpLoadBlocks:
		return s.loadBlocks(ctx, t.op.File)
	}
	return fmt.Errorf("op %q is unknown", t.op.Verb)
}

func (s *server) load(ctx context.Context, l *Load) (*Info, error) {
	switch {
	case l == nil:
		return nil, errors.New("no model is named")
	case s.inf != nil:
		return nil, errors.New("a model is loaded already: a worker has one")
	}
	inf, err := s.build.Model(ctx, *l)
	if err != nil {
		return nil, err
	}
	s.inf, s.step.shared = inf, l.Of > 1
	info := Describe(inf)
	if l.Of > 1 {
		info.Saves = false // each rank has a part of every block
		info.BlockBytes *= int64(l.Of)
	}
	return &info, nil
}

// Describe is for a loaded model.
func Describe(inf infer.Inferencer) Info {
	count, size := inf.Blocks()
	info := Info{Model: inf.Config(), Blocks: count, BlockSize: size}
	if k, ok := inf.(infer.Keeper); ok {
		info.Keeps, info.Saves, info.BlockBytes = true, true, k.BlockBytes()
	}
	return info
}

func (s *server) readAdapter(ctx context.Context, t task, shape model.Config) {
	var err error
	if t.adapter, err = s.build.Adapter(t.op.Adapter.Path, shape); err != nil {
		_ = SendJSON(s.conn, KindReply, Reply{ID: t.op.ID, Error: err.Error()})
		return
	}
	s.pass(ctx, t)
}
