package clusters_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestRuntimeFails: a request whose runtime ends before the first byte, in a cluster that has no other place for it, is tried
// again by the front door, in every API's shape.
func TestRuntimeFails(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatPath, "/v1/messages", "/api/chat"} {
		t.Run(path, func(t *testing.T) {
			server, pool := authority(t)
			f := newFront(t, server, declared("west", "w", "default/chat"))
			west := newCluster(t, "west", "w", pool, chat, f.at)
			answer := west.answer
			var tries atomic.Int32
			west.answer = func(w http.ResponseWriter, r *http.Request) {
				if tries.Add(1) > 1 {
					answer(w, r)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				west.set(api.Asleep)
				panic(http.ErrAbortHandler)
			}
			f.known(t, chat.Name)
			if status, body := f.askAt(t, path, "chat"); status != http.StatusOK || body != `{"from":"west"}` {
				t.Errorf("%d %s", status, body)
			}
			if n := tries.Load(); n != 2 {
				t.Errorf("%d tries, want 2", n)
			}
		})
	}
}
