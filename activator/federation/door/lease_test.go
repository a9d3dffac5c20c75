package door_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// stuck is an instance whose first request is not answered until it is cancelled; others are answered at once.
type stuck struct {
	begun, ended chan struct{} // of the first request
	first        sync.Once
	others       chan struct{} // one value for each
}

func newStuck() *stuck {
	return &stuck{begun: make(chan struct{}), ended: make(chan struct{}), others: make(chan struct{}, 100)}
}

func (s *stuck) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the client's leaving goes unnoticed
	is := false
	s.first.Do(func() { is = true })
	if is {
		close(s.begun)
		<-r.Context().Done()
		close(s.ended)
		return
	}
	s.others <- struct{}{}
	fmt.Fprint(w, `{"from":"west"}`)
}

const doubles = "rouse_cluster_double_executions_total"

// count returns the sum of a metric of the front door.
func (f *front) count(t testing.TB, name string) (n float64) {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestLease: a cluster that is cut off for longer than its lease cancels requests without a first byte; the front
// door gets each answered once when the network is back.
func TestLease(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	w := newWire(t, f.at)
	west := newCluster(t, "west", "w", pool, chat, w.at)
	s := newStuck()
	west.answer = s.ServeHTTP
	f.known(t, chat.Name)
	west.set(api.Awake)
	var all sync.WaitGroup
	ask := func() {
		all.Go(func() {
			if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	ask()
	<-s.begun
	w.up.shut()
	w.down.shut()
	ask() // it is in transit when the lease ends
	<-s.ended
	if len(s.others) > 0 {
		t.Error("an attempt has begun that could not come through")
	}
	w.up.unshut()
	w.down.unshut()
	all.Wait()
	if n := len(s.others); n != 2 {
		t.Errorf("two requests were begun %d times after the network was back", n)
	}
	if n := f.count(t, doubles); n != 0 {
		t.Errorf("%v double executions were counted: the older attempt had ended", n)
	}
}

// TestDoubleExecution: if the front door has given up an attempt and its cluster does not know, the later attempt
// cancels the earlier one, and that is counted.
func TestDoubleExecution(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"))
	w := newWire(t, f.at)
	west := newCluster(t, "west", "w", pool, chat, w.at)
	s := newStuck()
	west.answer = s.ServeHTTP
	f.known(t, chat.Name)
	west.set(api.Awake)
	answered := make(chan string, 1)
	go func() {
		status, body := f.ask(t, "chat")
		answered <- fmt.Sprint(status, body)
	}()
	<-s.begun
	t.Cleanup(w.sever())
	if got := <-answered; got != `200{"from":"west"}` {
		t.Error(got)
	}
	<-s.ended
	if n := f.count(t, "rouse_cluster_lost_attempts_total"); n != 1 {
		t.Errorf("%v lost attempts were counted, want 1", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for f.count(t, doubles) != 1 { // the next beat reports it
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%v double executions were counted, want 1", f.count(t, doubles))
		}
	}
}
