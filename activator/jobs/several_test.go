package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/jobs/store/faulty"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// several returns servers of one bucket, whose service fails on demand. They run in real time. A request of theirs to it may take that long.
func several(t *testing.T, n int, timeout time.Duration) (all []*bench, service *faulty.Proxy) {
	t.Helper()
	service, at := faulty.New(t, s3test.Serve(t, s3test.NewFake()))
	for range n {
		s, err := store.Open(store.Config{S3: at, At: "s3://bucket", Limits: store.Limits{Shared: activator.Anonymous}, Poll: 50 * time.Millisecond, Lease: 10 * time.Second,
			Try: timeout / 3, Timeout: timeout}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, store: s, front: &fakeFront{door: inbound.New(inbound.Config{}), rooms: map[string]activator.Room{}, bad: map[string]*api.Error{}, answer: echo(time.Millisecond)}}
		b.front.set("m", activator.Room{Slots: 4, Free: 4})
		b.start(Config{Poll: 10 * time.Millisecond, Gather: 20 * time.Millisecond, Active: 1})
		t.Cleanup(func() {
			service.Fail(0)
			service.Down(false)
			b.stop()
			_ = s.Close()
		})
		all = append(all, b)
	}
	return all, service
}

// comes waits until is returns true.
func comes(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("it does not come: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSeveral: batches created at one server are run by all, and readable at each; no line is sent twice, or lost.
func TestSeveral(t *testing.T) {
	servers, _ := several(t, 3, time.Minute)
	var made []batchObject
	for range 6 { // each server runs one at a time
		made = append(made, servers[0].create("a", chats("m", 40), "24h"))
	}
	for k, o := range made {
		b := servers[k%3]
		comes(t, "the end of "+o.ID, func() bool { return b.show("a", o.ID).Status == store.Completed })
		done := b.show("a", o.ID)
		if out := b.output("a", done.Output); len(out) != 40 || done.Counts.Completed != 40 || done.ErrorFile != nil {
			t.Errorf("%d lines of %+v", len(out), done)
		}
		if w := servers[(k+1)%3].do(http.MethodGet, pathBatches+"/"+o.ID, "b", nil); w.Code != http.StatusNotFound {
			t.Errorf("another tenant sees it: %d", w.Code)
		}
	}
	asked, workers := map[string]int{}, 0
	for _, b := range servers {
		seen := b.front.requests()
		for _, r := range seen {
			asked[r.id]++
		}
		if len(seen) > 0 {
			workers++
		}
	}
	for id, n := range asked {
		if n != 1 {
			t.Errorf("the line %s was asked %d times", id, n)
		}
	}
	if len(asked) != 240 || workers < 2 {
		t.Errorf("%d lines were asked, by %d servers", len(asked), workers)
	}
}

// TestSeveralWithFaults: while the service fails, each line still gets one result.
func TestSeveralWithFaults(t *testing.T) {
	servers, service := several(t, 2, time.Second)
	o := servers[0].create("a", chats("m", 300), "24h")
	service.Fail(100)
	comes(t, "half of the batch", func() bool { return len(servers[0].front.requests())+len(servers[1].front.requests()) > 150 })
	service.Down(true)
	time.Sleep(100 * time.Millisecond) // something is recorded meanwhile
	service.Down(false)
	comes(t, "some faults", func() bool { return service.Faults.Load() > 5 })
	service.Fail(0)
	comes(t, "the end", func() bool { return servers[1].show("a", o.ID).Status == store.Completed })
	if out := servers[1].output("a", servers[1].show("a", o.ID).Output); len(out) != 300 {
		t.Errorf("%d lines have results", len(out))
	}
}

// TestElsewhere: a cancellation at one server ends work at another, and each finds what another has stored.
func TestElsewhere(t *testing.T) {
	servers, _ := several(t, 2, time.Minute)
	one, two := servers[0], servers[1]
	left := make(chan struct{}, 100)
	slow := func(_ http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-r.Context().Done():
			left <- struct{}{}
		case <-time.After(time.Minute):
			t.Error("a request goes on that nobody wants")
		}
	}
	one.front.answer, two.front.answer = slow, slow
	o := one.create("a", chats("m", 10), "24h")
	comes(t, "a line", func() bool { return len(one.front.requests()) > 0 })
	if b := want[batchObject](two, http.StatusOK, two.do(http.MethodPost, pathBatches+"/"+o.ID+"/cancel", "a", nil)); b.Status != store.Cancelling {
		t.Errorf("cancelled elsewhere: %+v", b)
	}
	<-left
	comes(t, "the end of the batch", func() bool { return two.show("a", o.ID).Status == store.Cancelled })
	if n := len(two.output("a", two.show("a", o.ID).ErrorFile)); n != 10 {
		t.Errorf("%d lines have an error", n)
	}
	w := one.later("a", `{"model":"m"}`)
	asked := want[laterObject](one, http.StatusAccepted, w)
	comes(t, "the request", func() bool {
		return slices.ContainsFunc(one.front.requests(), func(r seen) bool { return r.id == asked.ID })
	})
	for len(left) > 0 {
		<-left
	}
	if w := two.do(http.MethodDelete, asked.URL, "a", nil); w.Code != http.StatusOK {
		t.Errorf("deleted elsewhere: %d %s", w.Code, w.Body)
	}
	<-left
	if w := one.do(http.MethodGet, asked.URL, "a", nil); w.Code != http.StatusNotFound {
		t.Errorf("what was deleted elsewhere: %d", w.Code)
	}
}

// TestStoredElsewhere: a response is found, continued, and cancelled at another server than its own.
func TestStoredElsewhere(t *testing.T) {
	servers, _ := several(t, 2, time.Minute)
	answer := func(w http.ResponseWriter, _ *http.Request, body string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"resp_x","object":"response","status":"completed","output":[],"asked":%s}`, body)
	}
	for _, b := range servers {
		b.front.answer = answer
		b.handler = b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.front.ServeLater(w, r, activator.Caller{}, activator.Terms{})
		}))
	}
	one, two := servers[0], servers[1]
	first := want[stored](one, http.StatusOK, one.respond("a", `{"model":"m","input":[1],"store":true}`))
	if r := want[stored](two, http.StatusOK, two.do(http.MethodGet, pathStored+first.ID, "a", nil)); r.ID != first.ID {
		t.Errorf("the other finds %+v", r)
	}
	second := want[stored](two, http.StatusOK, two.respond("a", `{"model":"m","input":[2],"store":true,"previous_response_id":"`+first.ID+`"}`))
	if n := len(second.Asked.Input.([]any)); n != 2 {
		t.Errorf("what goes on from it was asked %d items", n)
	}
	if w := two.do(http.MethodGet, pathStored+first.ID, "b", nil); w.Code != http.StatusNotFound {
		t.Errorf("another tenant finds it: %d", w.Code)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	one.front.answer = func(_ http.ResponseWriter, r *http.Request, _ string) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	}
	runs := want[stored](one, http.StatusOK, one.respond("a", `{"model":"m","input":[3],"background":true,"store":true}`))
	comes(t, "the response in the background", func() bool {
		return want[stored](two, http.StatusOK, two.do(http.MethodGet, pathStored+runs.ID, "a", nil)).Status == "in_progress"
	})
	<-begun // a response cancelled earlier is never requested
	if r := want[stored](two, http.StatusOK, two.do(http.MethodPost, pathStored+runs.ID+"/cancel", "a", nil)); r.Status != "cancelled" {
		t.Errorf("cancelled elsewhere: %+v", r)
	}
	<-ended
	if r := want[stored](one, http.StatusOK, one.do(http.MethodGet, pathStored+runs.ID, "a", nil)); r.Status != "cancelled" {
		t.Errorf("the first finds %+v", r)
	}
}

// TestStoreDown: while the store is unavailable, requests that need it get an error to retry, in their API's format;
// all others work.
func TestStoreDown(t *testing.T) {
	servers, service := several(t, 1, time.Second)
	b := servers[0]
	file := b.file("a", chats("m", 1))
	service.Down(true)
	for _, tc := range [][3]string{
		{http.MethodGet, pathFiles, ""},
		{http.MethodGet, pathFiles + "/" + file, ""},
		{http.MethodGet, pathBatches, ""},
		{http.MethodPost, pathBatches, `{"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"24h"}`},
		{http.MethodGet, pathStored + "resp_1", ""},
		{http.MethodGet, pathMessages, ""},
		{http.MethodPost, "/v1/responses", `{"model":"m","input":"x","store":true,"previous_response_id":"resp_1"}`},
	} {
		w := b.do(tc[0], tc[1], "a", strings.NewReader(tc[2]))
		var said struct {
			Type  string
			Error struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || said.Error.Message == "" {
			t.Errorf("%s %s: %d %s %v", tc[0], tc[1], w.Code, w.Body, w.Header())
		}
		if strings.HasPrefix(tc[1], pathMessages) != (said.Type == "error") {
			t.Errorf("%s has not its API's shape: %s", tc[1], w.Body)
		}
	}
	if w := b.later("a", `{"model":"m"}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a request that is answered later: %d %s", w.Code, w.Body)
	}
	if w := b.do(http.MethodPost, "/v1/chat/completions", "a", strings.NewReader("x")); w.Body.String() != "next /v1/chat/completions x" {
		t.Errorf("a request that needs no store: %d %s", w.Code, w.Body)
	}
	service.Down(false)
	comes(t, "the file", func() bool { return b.do(http.MethodGet, pathFiles+"/"+file, "a", nil).Code == http.StatusOK })
}
