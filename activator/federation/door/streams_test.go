package door_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestStreamGoesOnElsewhere: a stream that its cluster aborts, or whose connections are lost, is resumed in a cluster
// that has the model, from the client's position.
func TestStreamGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	engine := chat
	engine.Runtime.Kind = api.RuntimeEngine
	for name, lost := range map[string]func(w *wire){"aborted": func(*wire) { panic(http.ErrAbortHandler) }, "cut off": (*wire).cut} {
		t.Run(name, func(t *testing.T) {
			server, pool := authority(t)
			f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "default/chat"))
			var asked atomic.Int32
			read := make(chan struct{}) // the client has read of the first event
			for cluster, secret := range map[string]string{"west": "w", "east": "e"} {
				w := newWire(t, f.at)
				newCluster(t, cluster, secret, pool, engine, w.at).answer = func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					rw.Header().Set("Content-Type", "text/event-stream")
					state, n := r.Header.Get(control.HeaderState), asked.Add(1)
					switch {
					case n == 1 && state == control.StateNew:
						fmt.Fprint(rw, control.StateComment+"id:1::0:11\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
						rw.(http.Flusher).Flush()
						<-read
						lost(w)
						<-r.Context().Done()
					case n > 1 && state == "id:1::0:11":
						fmt.Fprint(rw, control.StateComment+"12\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
					default:
						t.Errorf("attempt %d is asked for the state %q", n, state)
					}
				}
			}
			f.known(t, engine.Name)
			body := f.post(t.Context(), t, chatPath, `{"model":"chat","stream":true}`).Body
			first := make([]byte, 1)
			if _, err := io.ReadFull(body, first); err != nil {
				t.Fatal(err)
			}
			close(read)
			rest, err := io.ReadAll(body)
			got := string(first) + string(rest)
			const want = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
			if got != want || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
