package activator

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// asleepWith returns a bench with two sleeping instances, each with a conversation, and a grant for the second alone.
// name is the conversation that the first one has kept.
func asleepWith(t *testing.T) (b *bench, first, granted *fakeInstance, name string) {
	t.Helper()
	b = startBench(t, nil)
	f := b.function("m", nil)
	first, granted = b.instance(f, "m-0001", api.Awake), b.instance(f, "m-0002", api.Awake)
	at := map[string]string{}
	for _, one := range []string{"x", "y", "z", "u", "v", "w"} {
		resp, _ := b.post(chatPath, chatOf("m", one, 12))
		at[one] = resp.Header.Get(headerInstance)
		if at[one] == "m-0001" {
			name = one
		}
	}
	if name == "" {
		t.Fatalf("none of the conversations is at the first instance: %v", at)
	}
	for _, i := range []*fakeInstance{first, granted} {
		i.mu.Lock()
		i.status.Level, i.status.Load = api.Level1, &api.Load{Cached: 1 << 20, CacheKnown: true}
		i.mu.Unlock()
		b.a.ObserveInstance(i.set(api.Asleep))
	}
	b.grant(granted, 1)
	return b, first, granted, name
}

// prefers returns the preferred instance in the last demand with a waiting request.
func (b *bench) prefers() (id api.InstanceID) {
	for _, d := range b.demands() {
		if d.Waiting > 0 {
			id = d.Prefers
		}
	}
	return id
}

// TestPrefersTheConversation: the autoscaler is asked for the sleeper that has kept the conversation, though only the
// other may be woken without asking.
func TestPrefersTheConversation(t *testing.T) {
	b, first, granted, name := asleepWith(t)
	done := make(chan string, 1)
	go func() {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, b.ts.URL+chatPath, strings.NewReader(chatOf("m", name, 13)))
		if err != nil {
			done <- err.Error()
			return
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			done <- err.Error()
			return
		}
		_ = resp.Body.Close()
		done <- resp.Header.Get(headerInstance)
	}()
	b.eventually("the autoscaler is asked for the first", func() bool { return b.prefers() == first.id })
	b.a.ObserveInstance(first.set(api.Awake)) // the autoscaler wakes it
	if at := <-done; at != string(first.id) || granted.wakes.Load() != 0 {
		t.Errorf("it went to %s, and the other was woken %d times", at, granted.wakes.Load())
	}
}

// TestPrefersInVain: if the autoscaler does not answer, the sleeper with a grant is woken. If no sleeper has kept the
// conversation, it is woken at once.
func TestPrefersInVain(t *testing.T) {
	b, first, granted, name := asleepWith(t)
	resp, _ := b.post(chatPath, chatOf("m", name, 13))
	if at := resp.Header.Get(headerInstance); at != string(granted.id) || granted.wakes.Load() != 1 {
		t.Errorf("it went to %s, and the one with a grant was woken %d times", at, granted.wakes.Load())
	}
	if b.prefers() != first.id {
		t.Errorf("the autoscaler was asked for %q", b.prefers())
	}

	b, _, granted, _ = asleepWith(t)
	resp, _ = b.post(chatPath, chatOf("m", "something else", 13))
	if at := resp.Header.Get(headerInstance); at != string(granted.id) || b.prefers() != "" {
		t.Errorf("what nobody has kept went to %s, and the autoscaler was asked for %q", at, b.prefers())
	}
}
