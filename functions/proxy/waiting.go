package proxy

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// waiting counts the requests that wait for a slot. While there are some, it ends streams that nobody reads.
type waiting struct {
	count atomic.Int64

	mu      sync.Mutex // guards the fields below
	streams map[*exchange]struct{}
	timer   *time.Timer // nil: it does not run
}

func (w *waiting) begin() {
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Second, w.check)
	}
}

func (w *waiting) end() { w.count.Add(-1) }

func (w *waiting) watch(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams == nil {
		w.streams = make(map[*exchange]struct{})
	}
	w.streams[x] = struct{}{}
}

func (w *waiting) forget(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, x)
}

// check runs on the timer.
func (w *waiting) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count.Load() == 0 {
		w.timer = nil
		return
	}
	w.timer.Reset(time.Second)
	for x := range w.streams {
		if x.unread.Stuck() {
			x.unread.Cut(http.NewResponseController(x.w), func() { x.log("stream ended: nobody reads it, and another request waits", nil) })
			delete(w.streams, x)
		}
	}
}
