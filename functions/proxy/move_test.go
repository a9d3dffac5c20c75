package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// moving is a gate of an instance that can give way.
type moving struct {
	gate
	movable atomic.Int32
	moves   atomic.Bool
}

func (g *moving) Movable(is bool) {
	if is {
		g.movable.Add(1)
	} else {
		g.movable.Add(-1)
	}
}

func (g *moving) Moving() bool { return g.moves.Load() }

// TestMoves: an instance gives way with a request in each stage. A stream's end is marked if its state is known, and an unanswered
// request is given back. The gate knows that all others can't move.
func TestMoves(t *testing.T) {
	const (
		event  = control.StateComment + "1,2\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
		silent = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	)
	asleep := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"the model went to sleep","code":"asleep"}}`)
	}
	stream := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
	}
	abort := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	for name, test := range map[string]struct {
		state   string
		before  func(http.ResponseWriter) // the runtime gives way
		after   func(http.ResponseWriter) // after it did
		movable int32
		refused bool
		body    string // the part that arrives
		code    string
	}{
		"a stream":                      {"new", stream(event), abort, 1, false, event + control.MovedComment + "\n\n", api.CodeMoved},
		"one that has not begun":        {"new", nil, asleep, 1, true, "", api.CodeMoved},
		"one whose header has come":     {"new", stream(""), abort, 1, true, "", api.CodeMoved},
		"no stream":                     {"new", nil, asleep, 1, true, "", api.CodeMoved},
		"a connection without answer":   {"new", nil, abort, 1, true, "", api.CodeMoved},
		"a stream without state":        {"new", stream(silent), abort, 0, false, silent, api.CodeStreamCut},
		"a state that is too long":      {"new", stream(control.StateComment + strings.Repeat("1,", 23<<10) + "1\n" + silent), abort, 0, false, "", api.CodeStreamCut},
		"a state that was long already": {strings.Repeat("1,", 23<<10) + "1", stream(event), abort, 0, false, event, api.CodeStreamCut},
		"nobody asked":                  {"", stream(event), abort, 0, false, event, api.CodeStreamCut},
	} {
		t.Run(name, func(t *testing.T) {
			g := &moving{}
			begun, goOn := make(chan struct{}), make(chan struct{})
			b := set(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if test.before != nil {
					test.before(w)
				}
				close(begun)
				<-goOn
				test.after(w)
			}, func(c *proxy.Config) {
				c.Tenants = true
				g.base = c.Gate.(*gate).base
				c.Gate = g
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			if test.state != "" {
				r.Header.Set(control.HeaderState, test.state)
			}
			answered := make(chan *http.Response, 1) // one answer
			go func() {
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
				}
				answered <- resp
			}()
			<-begun
			var resp *http.Response
			first := ""
			if test.before != nil && !test.refused { // the client has the part sent before
				if resp = <-answered; resp == nil {
					t.FailNow()
				}
				part := make([]byte, max(1, min(len(test.body), len(event))))
				n, err := io.ReadAtLeast(resp.Body, part, 1)
				if first = string(part[:n]); err != nil {
					t.Fatal(err)
				}
			}
			if got := g.movable.Load(); got != test.movable {
				t.Errorf("%d requests can go on elsewhere, want %d", got, test.movable)
			}
			g.moves.Store(true)
			close(goOn)
			if resp == nil {
				if resp = <-answered; resp == nil {
					t.FailNow()
				}
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			got := first + string(raw)
			switch {
			case test.refused:
				if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(control.HeaderRefused) != api.CodeMoved {
					t.Errorf("got %s %v %q, want it given back", resp.Status, resp.Header, got)
				}
			case test.code == api.CodeMoved:
				if got != test.body || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("got %q, %v; want %q, and the connection's end", got, err, test.body)
				}
			case !strings.HasPrefix(got, test.body) || strings.Contains(got, control.MovedComment):
				t.Errorf("got %.300q, want %q and no word of a move", got, test.body)
			}
			if o := <-b.outcomes; o.Code != test.code {
				t.Errorf("outcome %+v, want code %s", o, test.code)
			}
			if n, left := g.movable.Load(), g.inside.Load(); n != 0 || left != 0 {
				t.Errorf("%d of %d requests can still go on elsewhere", n, left)
			}
		})
	}
}
