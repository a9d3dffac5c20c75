package link_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/rouse-dev/rouse/internal/link"
)

// TestUnasked: an agent that answers what nobody asked gets its link ended, or is not heard; a request on it is not answered with that,
// and another link goes on.
func TestUnasked(t *testing.T) {
	var fields bytes.Buffer
	if err := hpack.NewEncoder(&fields).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(*http2.Framer) error{
		"a header": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 7, BlockFragment: fields.Bytes(), EndHeaders: true})
		},
		"a body":       func(f *http2.Framer) error { return f.WriteData(7, true, []byte("unasked")) },
		"even streams": func(f *http2.Framer) error { return f.WriteData(2, true, []byte("unasked")) },
		"a push": func(f *http2.Framer) error {
			return f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: fields.Bytes(), EndHeaders: true})
		},
		"garbage": func(f *http2.Framer) error { return f.WriteRawFrame(0x42, 0xff, 7, []byte("garbage")) },
	} {
		t.Run(name, func(t *testing.T) {
			other := connect(t, link.Config{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "right") })
			agent, front := dialled(t)
			go func() { // an agent by hand, which ends with its connection
				_, _ = agent.Write([]byte("\x00\x2b" + `{"agent":"a","session":"s","secret":"long"}`))
				f := http2.NewFramer(agent, agent)
				_, _ = io.CopyN(io.Discard, agent, int64(len(http2.ClientPreface)))
				_ = f.WriteSettings()
				_ = answer(f)
				_, _ = io.Copy(io.Discard, agent)
			}()
			l, err := link.Accept(t.Context(), front, link.Config{PingAfter: 100 * time.Millisecond, PingTimeout: 100 * time.Millisecond}, func(link.Hello) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://any/", strings.NewReader("asked"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := l.RoundTrip(r); err == nil {
				raw, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				t.Errorf("answered %s, %q", resp.Status, raw)
			}
			<-l.Done()
			resp, err := other.do(t.Context(), "/", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if raw, err := io.ReadAll(resp.Body); string(raw) != "right" || err != nil {
				t.Errorf("another link: %q, %v", raw, err)
			}
		})
	}
}

// FuzzHello: whatever a stranger sends first, Accept ends, and takes nothing for a Hello that is none.
func FuzzHello(f *testing.F) {
	f.Add([]byte("\x00\x2b" + `{"agent":"a","session":"s","secret":"long"}`))
	f.Add([]byte("\xff\xff"))
	f.Add([]byte("\x00\x02{}"))
	f.Add([]byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, said []byte) {
		agent, front := net.Pipe()
		go func() {
			_, _ = agent.Write(said)
			_ = agent.Close()
		}()
		var heard *link.Hello
		l, err := link.Accept(t.Context(), front, link.Config{}, func(h link.Hello) error {
			heard = &h
			return io.ErrUnexpectedEOF
		})
		if err == nil || l != nil {
			t.Fatal("a link that was not admitted")
		}
		if heard != nil && (len(said) < 2 || len(said) < 2+int(said[0])<<8+int(said[1])) {
			t.Errorf("%q is taken for %+v", said, heard)
		}
	})
}
