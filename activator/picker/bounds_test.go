package picker_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
)

// serve sends an answer for a request with an endpoint, and reads what is passed on.
func (s *stream) serve() {
	defer s.cancel()
	m, err := s.Recv()
	if err != nil || m.GetRequestHeaders() == nil {
		s.t.Errorf("got %v, %v", m, err)
		return
	}
	if m, err = s.Recv(); err != nil || string(m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()) != chat {
		s.t.Errorf("the body is %v, %v", m, err)
		return
	}
	s.answer("200", false, "content-type", "application/json")
	s.answerBody("{}", true)
	for end := false; !end; {
		if m, err = s.Recv(); err != nil {
			s.t.Errorf("the answer: %v", err)
			return
		}
		end = m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream()
	}
}

// TestThousand holds a thousand requests with no instance awake, lets half of them leave, and answers the rest; no
// goroutine remains.
func TestThousand(t *testing.T) {
	b := start(t, nil)
	b.ask("") // the connection exists
	before := runtime.NumGoroutine()
	const n = 1000
	streams := make([]*stream, n)
	for i := range streams {
		streams[i] = b.open(duplex)
		streams[i].header(false, nil)
		streams[i].body(chat, true)
	}
	waiting := func() int { st, _ := b.a.Stats(b.name); return st.Waiting }
	b.eventually("all wait", func() bool { return waiting() == n })
	for i := range n / 2 {
		streams[2*i].cancel()
	}
	b.eventually("half of them left", func() bool { return waiting() == n/2 })
	b.grant(b.instance("one", api.Asleep))
	var all sync.WaitGroup
	for i := range n / 2 {
		all.Go(streams[2*i+1].serve)
	}
	all.Wait()
	b.eventually("no slot is taken", b.idle)
	b.eventually("no goroutine stays", func() bool { return runtime.NumGoroutine() <= before+20 })
}

// TestLarge passes a large body on in pieces, and refuses one that is too large before it arrives.
func TestLarge(t *testing.T) {
	b := start(t, nil)
	b.instance("one", api.Awake)
	body := `{"model":"tiny","messages":[{"role":"user","content":"` + strings.Repeat("x", 1<<20) + `"}]}`
	if r := b.ask(body); r.status != http.StatusOK || !strings.Contains(r.body, "xxx") {
		t.Errorf("1 MiB: got %d, %d bytes, %v", r.status, len(r.body), r.cut)
	}
	s := b.open(duplex)
	s.header(false, nil, "content-length", "1099511627776")
	if r := immediate(s.recv()); r == nil || r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("1 TiB: got %+v", r)
	}
	b.eventually("no slot is taken", b.idle)
}

// TestSilentConnections: of connections without a stream one address has a bounded number, and the oldest are closed. One
// with a stream stays.
func TestSilentConnections(t *testing.T) {
	for _, plain := range []bool{true, false} {
		address := free(t)
		b := start(t, func(c *picker.Config) { c.Plain, c.Address = plain, address })
		creds := insecure.NewCredentials()
		if !plain {
			creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // as gateways do
		}
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		b.gw = extproc.NewExternalProcessorClient(conn)
		s := b.open(duplex)
		s.header(false, nil)
		s.body(chat, true)
		b.eventually("a request waits", func() bool { st, _ := b.a.Stats(b.name); return st.Waiting == 1 })
		var oldest net.Conn
		for n := range 1024 + 1 { // a quarter of the most
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !plain {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) // as gateways do
			}
			if n == 0 {
				oldest = c
			}
			if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil && c != oldest {
				break // there are fewer files, and it is closed
			}
		}
		_ = oldest.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, oldest); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without TLS %v: the oldest of too many silent connections stays", plain)
		}
		b.instance("one", api.Awake)
		s.serve()
		b.eventually("no slot is taken", b.idle)
	}
}

// TestTLS speaks TLS with a self-signed certificate.
func TestTLS(t *testing.T) {
	address := free(t)
	b := start(t, func(c *picker.Config) { c.Plain, c.Address = false, address })
	b.instance("one", api.Awake)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))) // as gateways do
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	b.gw = extproc.NewExternalProcessorClient(conn)
	if r := b.ask(chat); r.status != http.StatusOK {
		t.Errorf("got %+v", r)
	}
}

// TestConfig refuses invalid configurations.
func TestConfig(t *testing.T) {
	for want, c := range map[string]picker.Config{
		"want host:port":       {Address: "9002"},
		"want ip:port":         {Address: ":0", Front: "rouse"},
		"want both":            {Address: ":0", Cert: "a"},
		"want one of them":     {Address: ":0", Cert: "a", Key: "b", Plain: true},
		"picker's certificate": {Address: ":0", Cert: "/no/such", Key: "/no/such"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", c, err, want)
		}
	}
	if err := (picker.Config{Address: "127.0.0.1:9002"}).Validate(); err != nil {
		t.Error(err)
	}
}
