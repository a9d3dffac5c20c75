package worker

import "context"

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
