package worker

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
)

// InProcess launches workers in this process.
func InProcess(build Builder) Launch {
	return func(context.Context) (Running, error) {
		here, there := Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		r := &local{Conn: here, cancel: cancel, done: make(chan struct{})}
		go func() {
			defer close(r.done)
			r.err = Serve(ctx, there, build)
		}()
		return r, nil
	}
}

// local ends after Kill, or with its connection.
type local struct {
	Conn
	cancel context.CancelFunc
	done   chan struct{} // closed with err set
	err    error
}

func (l *local) Kill() {
	l.cancel()
	l.Close()
}

func (l *local) Wait() error {
	<-l.done
	return l.err
}

func (l *local) PIDs() []int { return nil }

// Borrowed makes a [Builder]'s Model of inf, which the caller closes.
func Borrowed(inf infer.Inferencer) func(context.Context, Load) (infer.Inferencer, error) {
	return func(ctx context.Context, _ Load) (infer.Inferencer, error) {
		return &borrowed{Inferencer: inf}, inf.Wake(ctx)
	}
}

// borrowed gets its model back in the state it had.
type borrowed struct {
	infer.Inferencer
	adapters []int32
}

func (b *borrowed) LoadAdapter(id int32, a *lora.Adapter) error {
	err := b.Inferencer.LoadAdapter(id, a)
	if err == nil {
		b.adapters = append(b.adapters, id)
	}
	return err
}

func (b *borrowed) Close() error {
	for _, id := range b.adapters {
		if err := b.UnloadAdapter(id); err != nil && !errors.Is(err, infer.ErrNoAdapter) && !errors.Is(err, infer.ErrClosed) {
			return err
		}
	}
	return nil
}
