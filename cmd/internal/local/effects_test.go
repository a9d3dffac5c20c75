package local

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/apitest"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/internal/bell"
)

func TestEffects(t *testing.T) {
	apitest.Run(t, func(t *testing.T, test func(*testing.T, apitest.World)) {
		a, reports := newAgentOf(t)
		pico, err := config.ForModel("pico", "test")
		if err != nil {
			t.Fatal(err)
		}
		test(t, apitest.World{Effects: a, Function: pico,
			Await: func(id api.InstanceID, s api.State) api.InstanceStatus { return reports.await(t, id, s) },
			Kill: func(id api.InstanceID) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.instances[id].Kill()
			}})
	})
}

// newAgentOf makes an agent whose runtimes are processes of this very program, and ends them with the test.
func newAgentOf(t *testing.T) (*agent, *reports) {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := &reports{more: bell.New()}
	a := newAgent(Config{Program: self, Logger: slog.New(slog.DiscardHandler)}, functions.Config{Env: os.Environ()}, dir, all)
	t.Cleanup(a.killAll)
	return a, all
}

// reports are instances' reports, in their order.
type reports struct {
	mu   sync.Mutex // guards all
	all  []api.InstanceStatus
	more bell.Bell // rung when there is another
}

// Emit is part of [api.Emitter].
func (r *reports) Emit(e api.Event) {
	var s api.InstanceStatus
	if json.Unmarshal(e.Data, &s) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	r.more.Ring()
}

// await waits for a report that an instance has the state.
func (r *reports) await(t *testing.T, id api.InstanceID, want api.State) api.InstanceStatus {
	t.Helper()
	late := time.After(time.Minute)
	for {
		r.mu.Lock()
		at := slices.IndexFunc(r.all, func(s api.InstanceStatus) bool { return s.Instance == id && s.State == want })
		if at >= 0 {
			defer r.mu.Unlock()
			return r.all[at]
		}
		r.mu.Unlock()
		select {
		case <-r.more:
		case <-late:
			t.Fatalf("%s does not report that it is %s", id, want)
		}
	}
}
