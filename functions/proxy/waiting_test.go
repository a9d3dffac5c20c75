package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// shared is a gate with some slots, in which requests wait.
type shared struct {
	moving
	slots chan struct{}
	gives atomic.Bool // requests are to give way
}

func (g *shared) EnterInTurn(ctx context.Context, _ control.Turn, beforeWait func() error) (string, *api.Error, error) {
	if len(g.slots) == cap(g.slots) {
		if err := beforeWait(); err != nil {
			return "", nil, err
		}
	}
	g.slots <- struct{}{}
	base, refused := g.Enter()
	return base, refused, nil
}

func (g *shared) LeaveTurn(control.Turn, float64) { g.Leave(); <-g.slots }

func (g *shared) GivesWay(control.Turn, time.Duration) bool { return g.gives.Load() }

// paced is a runtime whose streams have an event each second, with its state.
type paced struct{}

func (paced) RoundTrip(r *http.Request) (*http.Response, error) {
	text, send := io.Pipe()
	go func() {
		for {
			if _, err := io.WriteString(send, control.StateComment+"1,2\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r, ContentLength: -1, Body: text}, nil
}

// TestSlotsAreGivenOn: a stream that nobody reads, or that is to give way, keeps its slot until another request waits. Then the stream is
// cut, marked as moved if it can continue, and the other gets the slot.
func TestSlotsAreGivenOn(t *testing.T) {
	for name, gives := range map[string]bool{"it is not read": false, "it gives way": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &shared{slots: make(chan struct{}, 1)}
				g.base = "http://runtime"
				g.gives.Store(gives)
				outcomes := make(chan proxy.Outcome, 2)
				server := &http.Server{Handler: proxy.New(proxy.Config{Gate: g, Transport: paced{}, States: true, Tenants: true, Observe: func(o proxy.Outcome) { outcomes <- o }})}
				ask := func() net.Conn {
					ours, theirs := net.Pipe()
					l := one{make(chan net.Conn, 1)}
					l.conns <- theirs
					go func() { _ = server.Serve(l) }()
					if _, err := io.WriteString(ours, "POST /v1/completions HTTP/1.1\r\nHost: f\r\n"+control.HeaderState+": "+control.StateNew+"\r\n"+control.HeaderQueue+": 2 0 0 9000 1\r\nContent-Length: 15\r\n\r\n{\"stream\":true}"); err != nil {
						t.Fatal(err)
					}
					return ours
				}
				first := ask()
				text := make(chan string, 1)
				if gives {
					go func() {
						all, _ := io.ReadAll(first)
						text <- string(all)
					}()
				}
				time.Sleep(30 * time.Second)
				if len(outcomes) > 0 {
					t.Error("the stream has ended although no other request waits")
				}
				asked := time.Now()
				second := bufio.NewReader(ask())
				for line := ""; !strings.HasPrefix(line, "data: "); { // it has the slot
					var err error
					if line, err = second.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				if waited := time.Since(asked); waited > 10*time.Second {
					t.Errorf("the other request waited for %s", waited)
				}
				want := api.CodeMoved
				if !gives {
					want = ""
				}
				if o := <-outcomes; o.Code != want {
					t.Errorf("the outcome is %+v", o)
				}
				if gives {
					if got := <-text; !strings.HasSuffix(got, control.MovedComment+"\n\n\r\n") || strings.HasSuffix(got, "0\r\n\r\n") {
						t.Errorf("the stream ends with %q", got[max(0, len(got)-100):])
					}
				}
				_ = server.Close()
				time.Sleep(time.Minute) // all end
			})
		})
	}
}
