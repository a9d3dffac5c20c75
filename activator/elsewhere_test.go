package activator

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// dying is a client's connection to a cluster that dies after so many bytes; -1: it lives.
type dying struct {
	http.ResponseWriter
	left int
}

func (d *dying) Write(p []byte) (int, error) {
	if d.left < 0 {
		return d.ResponseWriter.Write(p)
	}
	n := min(len(p), d.left)
	if n > 0 {
		_, _ = d.ResponseWriter.Write(p[:n])
	}
	if d.left -= n; d.left == 0 {
		_ = http.NewResponseController(d.ResponseWriter).Flush()
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// FlushError supports [http.ResponseController].
func (d *dying) FlushError() error { return http.NewResponseController(d.ResponseWriter).Flush() }

func (d *dying) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// TestStreamsGoOnInAnotherCluster: behind a front door a stream is resumed if, at any byte, its instance dies or
// gives way, or its cluster dies. The client gets each event once. A front door that does not ask for resumption gets
// the error event as before.
func TestStreamsGoOnInAnotherCluster(t *testing.T) {
	front := startBench(t, nil)
	fn := front.function("m", func(s *api.Function) { s.Runtime.Kind, s.MaxScale = api.RuntimeEngine, 2 })
	var mu sync.Mutex
	dies := -1        // the next cluster dies after so many bytes
	f := &resumable{} // the instances of both clusters
	for i := range 2 {
		cluster := startBench(t, nil)
		own := cluster.function("m", func(s *api.Function) { s.Runtime.Kind = api.RuntimeEngine })
		cluster.instance(own, "m-0", api.Awake).chat = f.chat
		front.instance(fn, "cluster-"+strconv.Itoa(i), api.Awake).chat = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			out := &dying{w, dies}
			dies = -1
			mu.Unlock()
			defer func() {
				if out.left == 0 {
					panic(http.ErrAbortHandler)
				}
			}()
			cluster.a.ServeAtOnce(out, r, "default/m")
		}
	}
	cut := func(text string) { // sets the cut of the next attempt, wherever it goes
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cuts = []string{text}
	}
	all := sent(0, len(words))
	ask := func(what string) {
		t.Helper()
		resp, got := front.post(chatPath, `{"model":"m","stream":true}`)
		if resp.StatusCode != http.StatusOK || got != whole() {
			t.Fatalf("%s: got %s %q", what, resp.Status, got)
		}
	}
	for at := 1; at < len(all)-1; at += 3 {
		mu.Lock()
		dies = at
		mu.Unlock()
		ask("a cluster dies behind byte " + strconv.Itoa(at))
	}
	for n := 1; n < len(words); n++ {
		cut(sent(0, n))
		ask("an instance dies behind event " + strconv.Itoa(n))
		cut(moves(0, n))
		ask("an instance gives way behind event " + strconv.Itoa(n))
	}
	cut("data: " + words[0] + "\n\n")
	if _, got := front.post(chatPath, `{"model":"m","stream":true}`, control.HeaderResume, "off"); !strings.Contains(got, `"code":"stream_cut"`) {
		t.Errorf("a client that does not want it gets %q", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.states[len(f.states)-1]; last != "" {
		t.Errorf("the instance is asked for the state %q for a client that does not want it", last)
	}
}
