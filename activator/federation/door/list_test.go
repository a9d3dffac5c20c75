package door_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api/admin"
)

// TestList: the state of a cluster that has joined, of one with a forbidden offer, and of one that was never there.
func TestList(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "default/other"), declared("attic", "a", "default/*"))
	begun, finish := make(chan struct{}), make(chan struct{})
	west := newCluster(t, "west", "w", pool, chat, f.at)
	west.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(begun)
		<-finish
		fmt.Fprint(w, `{"from":"west"}`)
	}
	newCluster(t, "east", "e", pool, chat, f.at)
	f.known(t, chat.Name)
	answered := make(chan struct{})
	go func() { defer close(answered); f.ask(t, "chat") }()
	<-begun
	until := func(what string, is func(map[string]admin.Cluster) bool) {
		t.Helper()
		late := time.After(20 * time.Second)
		for {
			by := map[string]admin.Cluster{}
			list := f.List()
			for _, c := range list {
				by[c.Name] = c
			}
			if len(list) == 3 && is(by) {
				return
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-late:
				t.Fatalf("%s: %+v", what, list)
			}
		}
	}
	until("one runs in the west", func(by map[string]admin.Cluster) bool {
		w, e, a := by["west"], by["east"], by["attic"]
		return w.State == admin.ClusterJoined && len(w.Agents) == 1 && w.Agents[0].Name == "agent-1" && w.Agents[0].Links > 1 && w.Agents[0].Way > 0 &&
			reflect.DeepEqual(w.Functions, []string{"default/chat"}) && w.Awake == 1 && w.Running == 1 && len(w.Refused) == 0 &&
			e.State == admin.ClusterJoined && len(e.Functions) == 0 && reflect.DeepEqual(e.Refused, []string{"default/chat: it is not among the functions that the front door declares for this cluster"}) &&
			a.State == admin.ClusterAway && a.Since.IsZero() && len(a.Agents) == 0
	})
	close(finish)
	<-answered
	west.stop()
	until("the west is away", func(by map[string]admin.Cluster) bool {
		return by["west"].State == admin.ClusterAway && !by["west"].Since.IsZero()
	})
}
