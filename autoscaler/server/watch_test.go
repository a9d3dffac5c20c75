package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// fleet is a decider whose functions a test changes.
type fleet struct {
	Decider
	mu        sync.Mutex // guards what follows
	functions map[api.FunctionName]admin.Function
	looks     int
}

func (f *fleet) List() (all []admin.Function) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	for _, v := range f.functions {
		all = append(all, v)
	}
	return all
}

func (f *fleet) Status(name api.FunctionName) (admin.Function, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, found := f.functions[name]
	return v, found
}

func (f *fleet) Devices() []admin.Device {
	return []admin.Device{{ID: "host", Capacity: 100}}
}

func (f *fleet) put(name api.FunctionName, state api.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.functions[name] = admin.Function{Function: api.Function{Name: name}, Instances: []api.InstanceStatus{{Instance: "i", State: state}}}
}

func (f *fleet) remove(name api.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.functions, name)
}

// watched is a server whose board a test reads.
func watched() (*Admin, *fleet, *cloudevent.Log) {
	f, log := &fleet{functions: map[api.FunctionName]admin.Function{}}, cloudevent.NewLog()
	return NewAdmin(AdminConfig{Decider: f, Events: log, Info: func() any { return map[string]string{"version": "v1"} },
		Far: func(context.Context, api.FunctionName) []admin.Far { return nil }}), f, log
}

// seen is a reader's knowledge of functions.
type seen map[api.FunctionName]api.State

func (s seen) take(t *testing.T, n news) {
	if n.whole {
		clear(s)
	}
	for _, raw := range n.functions {
		var f admin.Summary
		if err := json.Unmarshal(raw, &f); err != nil {
			t.Fatal(err)
		}
		s[f.Name] = f.State
	}
	for _, name := range n.gone {
		delete(s, name)
	}
}

// TestBoard: a reader is told each function once, then what changes, soon after its event or without one at the next look at all;
// with the last reader all work ends.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, log := watched()
		f.put("default/a", api.Gone)
		f.put("default/b", api.Asleep)
		leave, _ := s.board.join()
		first, changed := s.board.since(0)
		know := seen{}
		know.take(t, first)
		if !first.whole || len(know) != 2 || know["default/b"] != api.Asleep || string(first.devices) == "" {
			t.Fatalf("at first: %+v", first)
		}
		f.put("default/a", api.Awake)
		log.Emit(api.NewEvent(api.EventDecision, "/a", "default/a", api.Decision{Action: "start", Reason: "asked"}))
		began := time.Now()
		<-changed
		if d := time.Since(began); d > settle {
			t.Errorf("the change was told after %s", d)
		}
		second, changed := s.board.since(first.version)
		know.take(t, second)
		if second.whole || len(second.functions) != 1 || know["default/a"] != api.Awake || len(second.decisions) != 1 || second.devices != nil {
			t.Errorf("then: %+v", second)
		}
		f.remove("default/b") // no event
		<-changed
		third, changed := s.board.since(second.version)
		know.take(t, third)
		if len(know) != 1 || !slices.Equal(third.gone, []api.FunctionName{"default/b"}) {
			t.Errorf("after the removal: %+v, %v", third, know)
		}
		time.Sleep(10 * sweep)
		select {
		case <-changed:
			t.Error("nothing has changed, and readers are woken")
		default:
		}
		leave()
		looks := f.looks
		time.Sleep(10 * sweep)
		if f.looks != looks {
			t.Error("nobody reads, and the board looks")
		}
	})
}

// TestSlowReader: who was away is told the last state of each function, and what was forgotten meanwhile leaves no trace.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, log := watched()
		leave, _ := s.board.join()
		defer leave()
		f.put("default/stays", api.Asleep)
		f.put("default/goes", api.Asleep)
		time.Sleep(2 * sweep)
		first, _ := s.board.since(0)
		know := seen{}
		know.take(t, first)
		for range 50 {
			for _, state := range []api.State{api.Starting, api.Awake, api.Draining, api.Asleep} {
				f.put("default/stays", state)
				log.Emit(api.NewEvent(api.EventInstanceState, "/i", "default/stays", api.InstanceStatus{}))
				time.Sleep(2 * settle)
			}
		}
		if n, _ := s.board.since(first.version); len(n.functions) != 1 {
			t.Errorf("200 changes of one function are told as %d", len(n.functions))
		}
		f.remove("default/goes")
		for k := range 2 * mostGone {
			f.put(api.FunctionName(fmt.Sprintf("default/f%d", k)), api.Gone)
		}
		time.Sleep(2 * sweep)
		for k := range 2 * mostGone {
			f.remove(api.FunctionName(fmt.Sprintf("default/f%d", k)))
		}
		time.Sleep(2 * sweep)
		n, _ := s.board.since(first.version)
		know.take(t, n)
		if !n.whole || len(know) != 1 || know["default/stays"] != api.Asleep {
			t.Errorf("whole %t, known: %v", n.whole, know)
		}
		if got := s.board.order.Len(); got > mostGone {
			t.Errorf("%d functions are on the board, want %d at most", got, mostGone)
		}
	})
}

// TestTooManyReaders are refused with a time to come back.
func TestTooManyReaders(t *testing.T) {
	s, _, _ := watched()
	for range maxReaders {
		leave, ok := s.board.join()
		if !ok {
			t.Fatal("a reader was refused too early")
		}
		defer leave()
	}
	w := httptest.NewRecorder()
	s.watch(w, httptest.NewRequest(http.MethodGet, admin.PathWatch, nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, %v", w.Code, w.Header())
	}
}

// TestStream: the events as they go over the wire, to many readers at once.
func TestStream(t *testing.T) {
	s, f, log := watched()
	f.put("default/a", api.Asleep)
	r := mux.NewRouter()
	s.Routes(r, func(h http.HandlerFunc) http.HandlerFunc { return h })
	server := httptest.NewServer(r)
	defer server.Close()
	var all sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(100)
	for range 100 {
		all.Go(func() {
			resp, err := http.Get(server.URL + admin.PathWatch)
			if err != nil {
				t.Error(err)
				ready.Done()
				return
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
				t.Errorf("content type %q", got)
			}
			in := bufio.NewReader(resp.Body)
			if got := until(in, "event: ready"); !strings.Contains(got, "event: server\ndata: {\"version\":\"v1\"}\n\n") || !strings.Contains(got, `"state":"asleep"`) || !strings.Contains(got, "event: devices") {
				t.Errorf("at first: %s", got)
			}
			ready.Done()
			if got := until(in, `"state":"awake"`); !strings.Contains(got, "event: functions") {
				t.Errorf("then: %s", got)
			}
		})
	}
	ready.Wait()
	f.put("default/a", api.Awake)
	log.Emit(api.NewEvent(api.EventInstanceState, "/i", "default/a", api.InstanceStatus{}))
	all.Wait()
}

// until reads lines up to the one with a text.
func until(in *bufio.Reader, text string) string {
	var all strings.Builder
	for {
		line, err := in.ReadString('\n')
		all.WriteString(line)
		if strings.Contains(line, text) || err != nil {
			if err != nil && err != io.EOF {
				all.WriteString(err.Error())
			}
			return all.String()
		}
	}
}
