package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endlessStream is a request whose answer has no end that a client would live to see.
const endlessStream = `{"model":"fake","stream":true,"max_tokens":100000000,"messages":[{"role":"user","content":"hi"}]}`

// TestStreamsThatNobodyReadsGiveWay: an attacker opens many streams and reads none, over one HTTP/2 connection whose windows stay at 0, or
// over connections of their own. They take all slots. Each request of another client is answered, and attackers' streams are cut.
func TestStreamsThatNobodyReadsGiveWay(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(t *testing.T, address string) (cut func() error){"HTTP/2": unreadHTTP2, "HTTP/1": unreadHTTP1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newPlace()
			if err != nil {
				t.Fatal(err)
			}
			p.direct = true // the clients are no readers
			p.serve(t, "-f", absolute(t, "testdata/shared.yaml"))
			honest := func() error {
				body := `{"model":"fake","max_tokens":2,"messages":[{"role":"user","content":"count"}]}`
				resp, err := http.Post(p.server.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
					return fmt.Errorf("an honest client gets %s: %s", resp.Status, text)
				}
				return nil
			}
			if err := honest(); err != nil { // the function is awake
				t.Fatal(err)
			}
			cut := attack(t, "127.0.0.1:"+p.server.port())
			for range 5 {
				if err := honest(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cut(); err != nil {
				t.Error(err)
			}
		})
	}
}

// dialAttacker connects from another address than the honest client's.
func dialAttacker(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// unreadHTTP2 begins 150 streams on a connection without a window, and returns once four were answered. cut waits until one is reset.
func unreadHTTP2(t *testing.T, address string) (cut func() error) {
	c := dialAttacker(t, address)
	f := http2.NewFramer(c, bufio.NewReader(c))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	for n := range 150 {
		var header bytes.Buffer
		e := hpack.NewEncoder(&header)
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", address}, {":path", "/v1/chat/completions"}, {"content-type", "application/json"}} {
			if err := e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
				t.Fatal(err)
			}
		}
		id := uint32(2*n + 1)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header.Bytes(), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteData(id, true, []byte(endlessStream)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() (http2.Frame, error) {
		frame, err := f.ReadFrame()
		if s, is := frame.(*http2.SettingsFrame); err == nil && is && !s.IsAck() {
			err = f.WriteSettingsAck()
		}
		return frame, err
	}
	for answered := 0; answered < 4; {
		frame, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if _, is := frame.(*http2.HeadersFrame); is {
			answered++
		}
	}
	return func() error {
		for {
			frame, err := next()
			if err != nil {
				return fmt.Errorf("wait for the end of a stream: %w", err)
			}
			switch frame := frame.(type) {
			case *http2.RSTStreamFrame:
				return nil
			case *http2.DataFrame:
				if frame.StreamEnded() {
					return fmt.Errorf("stream %d had a clean end", frame.StreamID)
				}
			}
		}
	}
}

// unreadHTTP1 begins a stream on each of twelve connections, and returns once four have a status. It reads no more.
func unreadHTTP1(t *testing.T, address string) (cut func() error) {
	answered := make(chan struct{}, 12)
	for range cap(answered) {
		c := dialAttacker(t, address)
		_ = c.SetReadBuffer(4 << 10)
		if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", address, len(endlessStream), endlessStream); err != nil {
			t.Fatal(err)
		}
		go func() {
			status := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(c, status); err == nil && string(status) == "HTTP/1.1 200" {
				answered <- struct{}{}
			}
		}()
	}
	for range 4 {
		<-answered
	}
	return func() error { return nil } // the kernel keeps what was sent, for as long as nobody reads it
}

// TestStreamsAboveTheirShareArePaused: four long streams of a client take the four slots of a vLLM. Another client's request is answered
// before any of them ends: one is paused for it, and continues. Its client sees the same stream as the others.
func TestStreamsAboveTheirShareArePaused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	path := simulatedChat(t, "50ms")
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	p.direct = true // the clients have addresses of their own
	p.serve(t, "-f", path)
	body := func(tokens int, more string) string {
		return fmt.Sprintf(`{"model":"chat","max_tokens":%d,"ignore_eos":true,"temperature":0,"messages":[{"role":"user","content":"go on"}]%s}`, tokens, more)
	}
	var streams sync.WaitGroup
	var ended atomic.Int32
	var got [4][]string
	begun := make(chan struct{}, len(got))
	for n := range got {
		streams.Go(func() {
			chunks, failure := chunksOf(t, p.server.url, "/v1/chat/completions", body(500, `,"stream":true`), func(n int) {
				if n == 1 {
					begun <- struct{}{}
				}
			})
			ended.Add(1)
			if got[n] = chunks; failure != "" {
				t.Errorf("a stream ends with %q", failure)
			}
		})
	}
	for range got {
		<-begun
	}
	other := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer other.CloseIdleConnections()
	resp, err := other.Post(p.server.url+"/v1/chat/completions", "application/json", strings.NewReader(body(2, "")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("the other client gets %s: %s", resp.Status, text)
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("the other client was answered once %d streams had ended", n)
	}
	streams.Wait()
	for _, chunks := range got[1:] {
		if diff := cmp.Diff(got[0], chunks); diff != "" {
			t.Errorf("two streams differ: %s", diff)
		}
	}
	if n := strings.Count(p.server.output(), `"stream paused for other clients"`); n != 1 {
		t.Errorf("%d streams were paused, want 1", n)
	}
}
