package protocol_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// TestUnasked checks that an agent's unsolicited answer closes its connection, is not taken for the answer to a
// request, and does not affect another link.
func TestUnasked(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n"
	for name, does := range map[string]func(agent net.Conn, turn string){
		"before the request": nil,
		"no turn":            func(agent net.Conn, _ string) { _, _ = io.WriteString(agent, answer+"\r\nunasked") },
		"another turn": func(agent net.Conn, _ string) {
			_, _ = io.WriteString(agent, answer+api.HeaderTurn+": 1\r\n\r\nunasked")
		},
		"an upgrade": func(agent net.Conn, _ string) {
			_, _ = io.WriteString(agent, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		},
		"interim without end": func(agent net.Conn, _ string) {
			_, _ = io.WriteString(agent, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100))
		},
		"garbage": func(agent net.Conn, _ string) { _, _ = io.WriteString(agent, "garbage\r\n\r\n") },
		"one answer too many": func(agent net.Conn, turn string) {
			_, _ = io.WriteString(agent, answer+api.HeaderTurn+": "+turn+"\r\n\r\n right "+answer+api.HeaderTurn+": "+turn+"\r\n\r\nunasked")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait for a connection that does not come
			other := connect(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "right") })
			agent, front := dialled(t)
			ended := make(chan struct{})
			p := protocol.NewPool(func(net.Conn) { close(ended) })
			defer p.Retire()
			_, _ = io.WriteString(agent, "\x00\x2b"+`{"agent":"a","session":"s","secret":"long"}`)
			if does == nil {
				_, _ = io.WriteString(agent, answer+"\r\nunasked")
			} else {
				go func() { // a hand-written agent, which ends with its connection
					if r, err := http.ReadRequest(bufio.NewReader(agent)); err == nil {
						does(agent, r.Header.Get(api.HeaderTurn))
					}
				}()
			}
			if err := protocol.AcceptLink(t.Context(), front, func(protocol.LinkHello) (*protocol.Pool, error) { return p, nil }); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://any/", strings.NewReader("asked"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := p.RoundTrip(r)
				if err != nil {
					break
				}
				raw, _ := io.ReadAll(resp.Body)
				if _ = resp.Body.Close(); string(raw) != " right " || name != "one answer too many" {
					t.Errorf("answered %s, %q", resp.Status, raw)
				}
			}
			<-ended
			if got, err := other.ask(t.Context(), "/", strings.NewReader("x")); got != "right" || err != nil {
				t.Errorf("another link: %q, %v", got, err)
			}
		})
	}
}

// FuzzHello checks that Accept ends on any first message, and accepts no invalid Hello.
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
		var heard *protocol.LinkHello
		err := protocol.AcceptLink(t.Context(), front, func(h protocol.LinkHello) (*protocol.Pool, error) {
			heard = &h
			return nil, io.ErrUnexpectedEOF
		})
		if err == nil {
			t.Fatal("a connection that was not admitted")
		}
		if heard != nil && (len(said) < 2 || len(said) < 2+int(said[0])<<8+int(said[1])) {
			t.Errorf("%q is taken for %+v", said, heard)
		}
	})
}
