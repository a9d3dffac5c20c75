package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
	"github.com/rouse-dev/rouse/internal/relay/relaytest"
)

// eventsOf returns the Events of a reader that returns the pieces.
func eventsOf(style api.Stream, largest int, broken bool, pieces ...string) *relay.Events {
	var from []io.Reader
	for _, p := range pieces {
		from = append(from, strings.NewReader(p))
	}
	if broken {
		from = append(from, iotest.ErrReader(errors.New("connection reset")))
	}
	return relay.NewEvents(relay.NewSource(context.Background(), io.MultiReader(from...), 4<<10, largest, nil), style)
}

func TestStreamsEnd(t *testing.T) {
	relaytest.Ends{Through: func(_ *testing.T, s relaytest.Stream) string {
		style := api.EventsOf(s.Path)
		if strings.HasSuffix(s.ContentType, "ndjson") {
			style = api.StreamLines
		}
		e := eventsOf(style, 32<<10, s.Broken, s.Pieces...)
		var seen []byte
		for {
			p, err := e.Next()
			seen = append(seen, p...)
			if errors.Is(err, relay.ErrCut) {
				seen = append(seen, style.Error(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "cut"), e.Number())...)
			}
			if err != nil {
				return string(seen)
			}
		}
	}}.Run(t)
}

// TestALargeEventIsClosed checks that an event forwarded in parts is closed before another may follow.
func TestALargeEventIsClosed(t *testing.T) {
	text := "data: " + strings.Repeat("x", 9<<10)
	e := eventsOf(api.StreamCompletion, 8<<10, true, text)
	p, err := e.Next()
	if string(p) != text[:8<<10] || err != nil {
		t.Fatalf("got %d bytes, %v; want the part that fills the buffer", len(p), err)
	}
	if p, err = e.Next(); string(p) != "\n\n" || !errors.Is(err, relay.ErrCut) {
		t.Errorf("got %q, %v; want the end of the event", p, err)
	}
}

// TestNumbers checks that an event after those of a Responses stream has the next number.
func TestNumbers(t *testing.T) {
	const created = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":6}\n\n"
	e := eventsOf(api.StreamResponses, 8<<10, true, created)
	if p, err := e.Next(); string(p) != created || err != nil || e.Number() != 7 || e.NumberAfter([]byte("data: {\"sequence_number\":9}\n\n")) != 10 {
		t.Errorf("got %q, %v, then the number %d", p, err, e.Number())
	}
}

// TestRequest checks that the outbound request has the client's content, nothing of its connection, and a body that
// can be resent.
func TestRequest(t *testing.T) {
	in := httptest.NewRequest(http.MethodPost, "http://model.example/v1/a%2Fb?c=%zz", nil)
	in.Header = http.Header{"Connection": {"X-Own"}, "X-Own": {"1"}, "X-Rouse-Tenant": {"mine"}, "Te": {"trailers"}, "Accept": {"*/*"}, "Expect": {"100-continue"}}
	h := http.Header{}
	relay.CopyHeader(h, in.Header)
	out := relay.Request(t.Context(), in, &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, h, relay.Bytes("body"))
	if got := out.URL.String(); got != "http://127.0.0.1:1/v1/a%2Fb?c=%zz" || out.Host != "model.example" || out.ContentLength != 4 {
		t.Errorf("it goes to %s as %s, with %d bytes", got, out.Host, out.ContentLength)
	}
	if len(out.Header) != 2 || out.Header.Get("Accept") != "*/*" || out.Header["User-Agent"][0] != "" {
		t.Errorf("the header is %v", out.Header)
	}
	for range 2 {
		body, err := out.GetBody()
		if got, err2 := io.ReadAll(body); string(got) != "body" || err != nil || err2 != nil {
			t.Errorf("the body is %q, %v, %v", got, err, err2)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: errors.New("no route")}:    true,
		&net.OpError{Op: "read", Err: errors.New("reset")}:       false,
		errors.New("the answer belongs to another request here"): false,
	} {
		if got := relay.Unreachable(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}

// deadlines is a client's connection that records its write deadlines.
type deadlines struct {
	http.ResponseWriter
	set []time.Duration // since the beginning; -1: cleared
	t0  time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		d.set = append(d.set, -1)
	} else {
		d.set = append(d.set, t.Sub(d.t0))
	}
	return nil
}

// TestWriteDeadline checks that writes have a deadline that is moved now and then. The first has none if it fits into
// buffers, which is never so for an HTTP/2 client.
func TestWriteDeadline(t *testing.T) {
	const timeout, second = time.Minute, time.Second
	for _, tc := range []struct {
		protocol, first int
		want            []time.Duration
	}{
		{1, 100, []time.Duration{timeout + second, timeout + 21*second, -1}},
		{1, 1 << 20, []time.Duration{timeout, timeout + 20*second + second, -1}},
		{2, 100, []time.Duration{timeout, timeout + 20*second + second, -1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &deadlines{t0: time.Now()}
			out := http.NewResponseController(client)
			d := relay.WriteDeadline{Timeout: timeout, Buffered: relay.Buffered(&http.Request{ProtoMajor: tc.protocol})}
			d.Move(out, tc.first)
			time.Sleep(second)
			d.Move(out, 10)
			d.Move(out, 10)
			time.Sleep(20 * second)
			d.Move(out, 10)
			d.Clear(out)
			if !slices.Equal(client.set, tc.want) {
				t.Errorf("HTTP/%d, first %d bytes: deadlines at %v, want %v", tc.protocol, tc.first, client.set, tc.want)
			}
		})
	}
}

// TestCut checks that only a write that takes long is stuck, that a cut ends it, and that none is left for the next request of
// the connection.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &deadlines{t0: time.Now()}
		out := http.NewResponseController(client)
		d := relay.WriteDeadline{Timeout: time.Minute, Buffered: 100}
		if d.Stuck() {
			t.Error("it is stuck before the first write")
		}
		d.Move(out, 10)
		time.Sleep(relay.CutAfter - time.Second)
		if d.Stuck() {
			t.Error("a write is stuck at once")
		}
		time.Sleep(time.Second)
		if !d.Stuck() {
			t.Error("a write that takes long is not stuck")
		}
		cuts := 0
		d.Cut(out, func() { cuts++ })
		if d.Done(); d.Stuck() {
			t.Error("it is stuck after the write")
		}
		d.Clear(out)
		d.Cut(out, func() { cuts++ })
		if cuts != 1 || len(client.set) != 2 || client.set[0] >= 0 || client.set[1] != -1 {
			t.Errorf("%d cuts, deadlines at %v; want one that has passed and is cleared", cuts, client.set)
		}
	})
}
