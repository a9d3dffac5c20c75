package cloudevent_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

func demand(waiting int) api.Event {
	return api.NewEvent(api.EventDemand, "/activator/test", "default/pico", api.Demand{Function: "default/pico", Waiting: waiting})
}

func TestBothContentModesRoundTrip(t *testing.T) {
	want := demand(3)
	binary, err := cloudevent.NewRequest(t.Context(), "http://receiver/", want, cloudevent.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := cloudevent.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	structured := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(raw)))
	structured.Header.Set("Content-Type", "application/cloudevents+json")
	for name, req := range map[string]*http.Request{"binary": binary, "structured": structured} {
		got, err := cloudevent.Receive(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if decoded, err := cloudevent.Decode(raw); err != nil || decoded.ID != want.ID {
		t.Errorf("Decode = %v, %v; want the event %s", decoded, err, want.ID)
	}
}

func TestReceiveRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		header map[string]string
		body   string
		status int
	}{
		"no event at all":       {nil, `{"a":1}`, 400},
		"binary without id":     {map[string]string{"ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s", "content-type": "application/json"}, `{}`, 400},
		"structured not JSON":   {map[string]string{"content-type": "application/cloudevents+json"}, `{"specversion`, 400},
		"data is not JSON":      {map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t", "ce-source": "/s", "content-type": "application/json"}, `{"a":`, 400},
		"larger than the limit": {map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t", "ce-source": "/s"}, strings.Repeat("x", cloudevent.MaxSize+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
			for k, v := range tt.header {
				req.Header.Set(k, v)
			}
			_, err := cloudevent.Receive(req)
			var e *api.Error
			if !errors.As(err, &e) || e.Status != tt.status {
				t.Errorf("Receive: %v, want an api.Error with status %d", err, tt.status)
			}
		})
	}
}

func TestSenderKeepsOrderAndRetries(t *testing.T) {
	var fails int
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails < 2 {
			fails++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		e, err := cloudevent.Receive(r)
		if err != nil {
			t.Error(err)
		}
		got <- e.ID
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	s, err := cloudevent.NewSender(cloudevent.SenderConfig{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	want := []string{}
	for i := range 3 {
		e := demand(i)
		want = append(want, e.ID)
		s.Emit(e)
	}
	for i := range want {
		if id := <-got; id != want[i] {
			t.Errorf("event %d is %s, want %s", i, id, want[i])
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFullQueueDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receiver := &late{}
		s, err := cloudevent.NewSender(cloudevent.SenderConfig{URL: "http://receiver.example", Transport: receiver})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range cloudevent.MaxQueue + 2 {
			e := demand(i)
			s.Emit(e)
			want = append(want, e.ID)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // Run makes a last attempt for queued events
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[2:], receiver.got); diff != "" || s.Dropped() != 2 {
			t.Errorf("dropped %d, sent (-want +got):\n%s", s.Dropped(), diff)
		}
	})
}
