package activator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// chatOf returns a chat of so many turns, the first of them long.
func chatOf(model, name string, turns int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":%q,"messages":[{"role":"system","content":"%s %s"}`, model, name, strings.Repeat("be kind ", 200))
	for n := range turns {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s %d"}`, name, n)
	}
	b.WriteString("]}")
	return b.String()
}

// TestConversationStays: a conversation stays with the instance that has its prompt, and the activator explains why.
func TestConversationStays(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	for n := range 4 {
		b.instance(name, fmt.Sprint("m-000", n), api.Awake)
	}
	at := map[int]string{}
	places := map[string]bool{}
	for turn := range 4 {
		for n := range 16 {
			resp, got := b.post(chatPath, chatOf("m", fmt.Sprint(n), 1+turn))
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("got %s %s", resp.Status, got)
			}
			instance := resp.Header.Get("X-Rouse-Instance")
			places[instance] = true
			picks := b.a.Picks(resp.Header.Get("X-Request-Id"))
			if len(picks) != 1 || string(picks[0].Instance) != instance || picks[0].Function != name {
				t.Fatalf("request to %s: got %+v", instance, picks)
			}
			if turn == 0 {
				at[n] = instance
				continue
			}
			if why := picks[0]; instance != at[n] || why.By != route.ByPrefix || why.Known != why.Prompt {
				t.Errorf("turn %d of %d went to %s (%+v), want %s", turn, n, instance, why.Choice, at[n])
			}
		}
	}
	if len(places) != 4 {
		t.Errorf("16 conversations went to %d instances", len(places))
	}
}

// TestSession: a client's session stays with an instance, whatever it requests, and the header goes before the body.
// With one instance there is no choice, and requests without a cached prompt go by load.
func TestSession(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	b.instance(name, "m-0000", api.Awake)
	header := "X-Session-Id"
	ask := func(session, body string) (api.InstanceID, api.Choice) {
		t.Helper()
		resp, _ := b.post(chatPath, body, header, session)
		picks := b.a.Picks(resp.Header.Get("X-Request-Id"))
		if len(picks) != 1 {
			t.Fatalf("got %d picks", len(picks))
		}
		return picks[0].Instance, picks[0].Choice
	}
	if _, why := ask("", chatOf("m", "x", 1)); why.By != route.ByOnly || why.Prompt != 0 {
		t.Errorf("one instance: got %+v", why)
	}
	for n := range 5 {
		b.instance(name, fmt.Sprint("m-000", n+1), api.Awake)
	}
	for session, body := range map[string]string{"s": `{"model":"m","user":"%d"}`, "": `{"model":"m","x":%d,"user":"u"}`} {
		at, why := ask(session, fmt.Sprintf(body, 0))
		for n := range 10 {
			if next, _ := ask(session, fmt.Sprintf(body, n)); next != at || why.By != route.BySession {
				t.Errorf("session %q went to %s (%+v), then to %s", session, at, why, next)
			}
		}
		header = "X-Session-Affinity"
		if next, _ := ask(session, fmt.Sprintf(body, 10)); next != at {
			t.Errorf("session %q went to %s, and by its other header to %s", session, at, next)
		}
		header = "X-Session-Id"
	}
	if _, why := ask("", `{"model":"m"}`); why.By != route.ByLoad {
		t.Errorf("no prompt: got %+v", why)
	}
}

// TestPicksAreBounded: only the last choices are kept.
func TestPicksAreBounded(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	b.instance(name, "m-0000", api.Awake)
	resp, _ := b.post(chatPath, `{"model":"m"}`)
	first := resp.Header.Get("X-Request-Id")
	if len(b.a.Picks(first)) != 1 || len(b.a.Picks("other")) != 0 {
		t.Error("the choice is not known, or one that never was is")
	}
	c := &call{a: b.a, f: b.queue(name), req: request{id: "again"}}
	for range maxPicks {
		b.a.picks.add(c, &queue.Slot{Target: queue.Target{Instance: "m-0000"}})
	}
	if len(b.a.Picks(first)) != 0 || len(b.a.Picks("again")) != maxPicks {
		t.Error("more choices are kept than there is room for")
	}
}

// TestTenantsShareNoPrompt: one tenant's prompts have no effect for another, nor for the same one with another salt.
func TestTenantsShareNoPrompt(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	for n := range 3 {
		b.instance(name, fmt.Sprint("m-000", n), api.Awake)
	}
	ask := func(address, body string) api.Choice {
		t.Helper()
		w := b.from(address, chatPath, body, "Content-Type", "application/json")
		picks := b.a.Picks(w.Header().Get("X-Request-Id"))
		if w.Code != http.StatusOK || len(picks) != 1 {
			t.Fatalf("got %d %s, %d picks", w.Code, w.Body, len(picks))
		}
		return picks[0].Choice
	}
	chat := chatOf("m", "secret", 1)
	salted := strings.Replace(chat, "{", `{"cache_salt":"s",`, 1)
	for n, tc := range []struct {
		address, body string
		by            string
	}{
		{"192.0.2.1", chat, route.ByPrompt}, {"192.0.2.1", chat, route.ByPrefix},
		{"192.0.2.2", chat, route.ByPrompt}, {"192.0.2.2", chat, route.ByPrefix},
		{"192.0.2.1", salted, route.ByPrompt}, {"192.0.2.1", salted, route.ByPrefix},
	} {
		if why := ask(tc.address, tc.body); why.By != tc.by || why.By == route.ByPrompt && why.Known != 0 {
			t.Errorf("request %d: got %+v, want by %s", n, why, tc.by)
		}
	}
}

// TestHeldAndGivenBack: a held request is routed by its prompt too, and one that an instance gave back has a choice
// for each attempt.
func TestHeldAndGivenBack(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	one, two := b.instance(name, "m-0001", api.Awake), b.instance(name, "m-0002", api.Awake)
	resp, _ := b.post(chatPath, chatOf("m", "x", 1))
	first := api.InstanceID(resp.Header.Get("X-Rouse-Instance"))
	if first == one.id {
		one, two = two, one // two has it
	}
	// Neither accepts requests; one only drains, and keeps its cache.
	b.a.ObserveInstance(one.set(api.Asleep))
	b.a.ObserveInstance(two.set(api.Draining))
	done := make(chan *http.Response)
	go func() {
		resp, _ := b.post(chatPath, chatOf("m", "x", 2), "X-Request-Id", "held")
		done <- resp
	}()
	b.eventually("it waits", func() bool { s, _ := b.a.Stats(name); return s.Waiting == 1 })
	b.a.ObserveInstance(two.set(api.Awake))
	if resp := <-done; resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s", resp.Status)
	}
	if picks := b.a.Picks("held"); len(picks) != 1 || picks[0].Instance != two.id || picks[0].By != route.ByPrefix {
		t.Errorf("held: got %+v, want %s by its prompt", picks, two.id)
	}
	b.a.ObserveInstance(one.set(api.Awake))
	two.set(api.Asleep) // unreported
	resp, _ = b.post(chatPath, chatOf("m", "x", 3), "X-Request-Id", "back")
	picks := b.a.Picks("back")
	if resp.StatusCode != http.StatusOK || len(picks) != 2 || picks[0].Instance != two.id || picks[1].Instance != one.id {
		t.Errorf("given back: got %s, %+v", resp.Status, picks)
	}
}
