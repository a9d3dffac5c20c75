package door_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// TestPushed: changes in a cluster are sent at once, not with the next beat. With beats alone this many sequential
// changes would take 100 s.
func TestPushed(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/*"))
	west := newCluster(t, "west", "w", pool, chat, f.at)
	f.known(t, chat.Name)
	late := time.After(time.Minute)
	for n := range 200 {
		state := []api.State{api.Awake, api.Asleep}[n%2]
		west.set(state)
		for is := api.State(""); is != state; {
			if far := f.Far(chat.Name); len(far) > 0 && len(far[0].Function.Instances) > 0 {
				is = far[0].Function.Instances[0].State
			}
			select {
			case <-late:
				t.Fatalf("a minute after the first change the front door knows %d", n)
			default:
				time.Sleep(100 * time.Microsecond) // there is no event to wait for
			}
		}
	}
}

// TestComeAndGo: clusters join and leave while requests are sent to them: all are answered.
func TestComeAndGo(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/*"), declared("east", "e", "default/*"))
	at := []*cluster{newCluster(t, "west", "w", pool, chat, f.at), newCluster(t, "east", "e", pool, chat, f.at)}
	f.known(t, chat.Name)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var answered atomic.Int64
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, body := f.ask(t, "chat"); status != 200 {
					t.Errorf("%d %s", status, body)
				}
				answered.Add(1)
			}
		})
	}
	for n := range 12 {
		k := n % 2
		for before := answered.Load(); answered.Load() < before+20; {
			time.Sleep(time.Millisecond) // there is no event to wait for
		}
		at[k].stop()
		at[k] = newCluster(t, []string{"west", "east"}[k], []string{"w", "e"}[k], pool, chat, f.at)
		f.until(t, chat.Name, "it has come back", func(far admin.Far, _ string) bool { return len(far.Clusters) == 2 })
	}
	close(stop)
	clients.Wait()
}

// TestPlacesOfTwoFronts: two front doors that know nothing of each other never exceed a cluster's slots. Of each at most
// eight requests are in the cluster, where they wait in one order.
func TestPlacesOfTwoFronts(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	fronts := []*front{newFrontNamed(t, "a", server, declared("west", "w", "default/*")), newFrontNamed(t, "b", server, declared("west", "w", "default/*"))}
	west := newCluster(t, "west", "w", pool, chat, fronts[0].at, fronts[1].at)
	var now, most, by atomic.Int64
	west.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		defer now.Add(-1)
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if s, _ := west.activator.Stats(chat.Name); s.Waiting > 14 {
			t.Errorf("%d requests wait in the cluster", s.Waiting)
		}
		by.Add(1)
		fmt.Fprint(w, "{}")
	}
	for _, f := range fronts {
		f.known(t, chat.Name)
	}
	var all sync.WaitGroup
	for range 30 {
		for _, f := range fronts {
			all.Go(func() {
				if status, body := f.ask(t, "chat"); status != 200 {
					t.Errorf("%d %s", status, body)
				}
			})
		}
	}
	all.Wait()
	if most.Load() > 2 || by.Load() != 60 {
		t.Errorf("%d ran at once, %d in all; want at most 2, and each of 60 once", most.Load(), by.Load())
	}
}
