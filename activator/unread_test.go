package activator

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// connection is a client's connection. With window, it takes that many writes, and then blocks until its deadline has passed.
type connection struct {
	*httptest.ResponseRecorder
	window int

	mu      sync.Mutex // guards late
	late    chan struct{}
	expired bool
}

func connect(window int) *connection {
	return &connection{ResponseRecorder: httptest.NewRecorder(), window: window, late: make(chan struct{})}
}

func (c *connection) Write(p []byte) (int, error) {
	if c.window--; c.window < 0 {
		<-c.late
		return 0, os.ErrDeadlineExceeded
	}
	return c.ResponseRecorder.Write(p)
}

func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.IsZero() && t.Before(time.Now()) && !c.expired {
		c.expired = true
		close(c.late)
	}
	return nil
}

// slow is the body of a stream that sends an event every few seconds, until it is closed. Without events it never ends.
type slow struct {
	ctx    context.Context
	every  time.Duration
	events []string // nil: always the same
}

func (s *slow) Read(p []byte) (int, error) {
	select {
	case <-time.After(s.every):
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
	if s.events == nil {
		return copy(p, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"), nil
	}
	if len(s.events) == 0 {
		return 0, io.EOF
	}
	event := s.events[0]
	s.events = s.events[1:]
	return copy(p, event), nil
}

func (*slow) Close() error { return nil }

// inBubble runs test with an activator in virtual time that has one awake instance of some slots, which instances are reached by to.
func inBubble(t *testing.T, slots int, change func(*api.Function), to roundTrip, test func(t *testing.T, a *Activator)) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Name: "test"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: control.New(to, nil), Transport: to, Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = a.Run(ctx) })
		f := api.Function{Name: "default/m", Concurrency: slots}
		if change != nil {
			change(&f)
		}
		a.PutFunction(f)
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: f.Name, State: api.Awake, Seq: 1, PID: 1, Endpoint: "http://192.0.2.1:80", Concurrency: slots, Since: time.Now()})
		test(t, a)
		cancel()
		run.Wait()
	})
}

// from serves a request of a client, and reports whether its connection was aborted.
func from(a *Activator, client string, w http.ResponseWriter, body string) (aborted bool) {
	defer func() { aborted = recover() == http.ErrAbortHandler }()
	r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(body))
	r.RemoteAddr = client + ":1"
	r.Header.Set("Content-Type", "application/json")
	a.Handler().ServeHTTP(w, r)
	return false
}

const streamBody = `{"model":"m","stream":true}`

// TestUnreadStreamsEnd: a stream whose client has stopped to read keeps its slot while nobody wants it. Once another request has waited for
// it and nothing was read for some seconds, the stream is cut, and the slot is the other's. That holds for all kinds of streams.
func TestUnreadStreamsEnd(t *testing.T) {
	const event, line = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n", "{\"message\":{\"content\":\"hi\"},\"done\":false}\n"
	for kind, tc := range map[string]struct {
		runtime, path, media, part string
	}{
		"events":    {"", chatPath, "text/event-stream", event},
		"container": {api.RuntimeHTTP, "/any", "text/plain", "hi"},
		"lines":     {api.RuntimeOllama, "/api/chat", "application/x-ndjson", line},
		"resumed":   {api.RuntimeEngine, chatPath, "text/event-stream", ""},
	} {
		t.Run(kind, func(t *testing.T) {
			to := func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2, Body: io.NopCloser(strings.NewReader("{}")), Request: r}
				if strings.Contains(string(body), "true") {
					from := &slow{ctx: r.Context(), every: time.Second}
					switch state := r.Header.Get(control.HeaderState); {
					case tc.part != "":
						from.events = slices.Repeat([]string{tc.part}, 1000)
					case state == control.StateNew:
						from.events = []string{sent(0, 1), sent(1, 2)} // and it is cut
					default:
						from.events = append([]string{sent(2, 3), sent(3, 4)}, slices.Repeat([]string{": waits\n\n"}, 1000)...)
					}
					resp.Header.Set("Content-Type", tc.media)
					resp.ContentLength, resp.Body = -1, from
				}
				return resp, nil
			}
			inBubble(t, 2, func(f *api.Function) { f.Runtime.Kind = tc.runtime }, to, func(t *testing.T, a *Activator) {
				serve := func(ctx context.Context, client string, w http.ResponseWriter, body string) (aborted bool) {
					defer func() { aborted = recover() == http.ErrAbortHandler }()
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, tc.path, strings.NewReader(body))
					r.RemoteAddr = client + ":1"
					r.Header.Set("Content-Type", "application/json")
					a.ServeFunction(w, r, "default/m")
					return false
				}
				unread, read := connect(3), connect(1<<20)
				cut := make(chan bool, 2)
				ctx, leave := context.WithCancel(t.Context())
				go func() { cut <- serve(t.Context(), "192.0.2.1", unread, streamBody) }()
				go func() { serve(ctx, "192.0.2.1", read, streamBody) }()
				time.Sleep(30 * time.Second)
				if len(cut) > 0 {
					t.Error("a stream was cut although nobody waited")
				}
				honest, began := connect(1<<20), time.Now()
				if serve(t.Context(), "192.0.2.2", honest, `{"model":"m","stream":false}`); honest.Code != 200 || time.Since(began) > time.Second {
					t.Errorf("got %d %s after %s", honest.Code, honest.Body, time.Since(began))
				}
				if aborted := <-cut; !aborted || strings.Contains(unread.Body.String(), "DONE") {
					t.Errorf("aborted %v; the client got %q", aborted, unread.Body)
				}
				if s, _ := a.Stats("default/m"); s.Running != 1 {
					t.Errorf("%d run, want the stream that is read", s.Running)
				}
				leave()
				const counted = `
# HELP rouse_activator_refused_total Requests that Rouse itself refused, by code.
# TYPE rouse_activator_refused_total counter
rouse_activator_refused_total{function="default/m",reason="evicted"} 1
`
				if err := testutil.GatherAndCompare(a.deps.Registry, strings.NewReader(counted), "rouse_activator_refused_total"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestUnreadUpgradeEnds: a write to the client of an upgraded connection is stuck between two reads of its instance, and ends with the
// call. So does one to the client of an HTTP/2 stream.
func TestUnreadUpgradeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := &call{}
		c.ctx, c.cancel = context.WithCancelCause(t.Context())
		up := newUpgraded(near, &c.reply.unread, time.Hour, func(time.Duration) {})
		go func() { _, _ = far.Write([]byte("x")) }()
		if time.Sleep(time.Minute); c.endUnread() {
			t.Error("it ends before anything has come")
		}
		if _, err := up.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		client, other := net.Pipe()
		c.reply.out = http.NewResponseController(&hijacked{conn: client})
		conn, _, err := passing{c: c}.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		if time.Sleep(relay.CutAfter - time.Nanosecond); c.endUnread() {
			t.Error("it ends too early")
		}
		time.Sleep(time.Nanosecond)
		if ends := c.endUnread(); !ends {
			t.Error("it does not end")
		}
		if _, err := conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
		_, _, _, _ = up.Close(), far.Close(), other.Close(), client.Close()

		d := &call{}
		w := connect(0)
		d.reply.w, d.reply.out = w, http.NewResponseController(w)
		d.ctx, d.cancel = context.WithCancelCause(t.Context())
		wrote := make(chan error)
		go func() { _, err := passing{w, d}.Write([]byte("x")); wrote <- err }()
		if time.Sleep(time.Hour); !d.endUnread() {
			t.Error("a stuck HTTP/2 stream does not end")
		}
		if err := <-wrote; err == nil || d.ctx.Err() == nil {
			t.Errorf("got %v, %v", err, d.ctx.Err())
		}
	})
}

// hijacked is the writer of a connection.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements [http.Hijacker].
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

// SetWriteDeadline does nothing.
func (h *hijacked) SetWriteDeadline(time.Time) error { return nil }

// TestStreamsArePaused: two long streams of a client take both slots. Another client's request is served after some time: a stream
// gives way at its next event, waits, and continues where it was. Its client sees one whole stream, with comments.
func TestStreamsArePaused(t *testing.T) {
	var states []string
	to := func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2, Body: io.NopCloser(strings.NewReader("{}")), Request: r}
		if strings.Contains(string(body), "stream") {
			state, at := r.Header.Get(control.HeaderState), 0
			if state != control.StateNew {
				at = strings.Count(state, ";") + 1
				states = append(states, state)
			}
			s := &slow{ctx: r.Context(), every: 7 * time.Second, events: []string{}}
			for ; at < len(words); at++ {
				s.events = append(s.events, sent(at, at+1))
			}
			resp.Header.Set("Content-Type", "text/event-stream")
			resp.ContentLength, resp.Body = -1, s
		}
		return resp, nil
	}
	engine := func(f *api.Function) { f.Runtime.Kind = api.RuntimeEngine }
	inBubble(t, 2, engine, to, func(t *testing.T, a *Activator) {
		var streams sync.WaitGroup
		clients := []*connection{connect(1 << 20), connect(1 << 20)}
		for _, c := range clients {
			streams.Go(func() {
				if from(a, "192.0.2.1", c, streamBody) {
					t.Error("a stream was aborted")
				}
			})
			synctest.Wait()
		}
		honest := connect(1 << 20)
		if from(a, "192.0.2.2", honest, `{"model":"m"}`); honest.Code != 200 || len(states) > 0 {
			t.Errorf("got %d %s, when %d streams had continued", honest.Code, honest.Body, len(states))
		}
		streams.Wait()
		if len(states) != 1 || states[0] != "id:1::0:11;12" {
			t.Errorf("continued were %q, want one stream behind its second event", states)
		}
		comments := 0
		for _, c := range clients {
			var events []string
			for event := range strings.SplitAfterSeq(c.Body.String(), "\n\n") {
				if strings.HasPrefix(event, ": rouse stage=") {
					comments++
				} else {
					events = append(events, event)
				}
			}
			if got := strings.Join(events, ""); got != whole() {
				t.Errorf("the client got %q", got)
			}
		}
		if comments == 0 {
			t.Error("the client of the paused stream got no comment")
		}
	})
}
