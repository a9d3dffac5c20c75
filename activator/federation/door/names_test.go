package door_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// offering is a cluster with one agent that offers these states, and answers with its name.
func offering(t *testing.T, f *front, pool *x509.CertPool, cluster, token string, states ...protocol.Function) *rogue {
	t.Helper()
	who := hello(cluster, "a")
	r, err := newRogue(t, f, &tls.Config{RootCAs: pool}, token, who)
	if err != nil {
		t.Fatal(err)
	}
	r.serves(t, f, pool, who, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, cluster) })
	for i := range states {
		states[i].State, states[i].Places, states[i].Kind = api.Awake, 10, api.RuntimeCommand
	}
	if err := r.stream.Send(&protocol.Up{Functions: states, Complete: true}); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		f.known(t, s.Name)
	}
	return r
}

// named returns a cluster's declaration with names.
func named(d door.Declaration, names ...string) door.Declaration {
	d.Names = names
	return d
}

// TestNamesThatAreNotItsOwn: a cluster gets no request by a name that its declaration does not allow. That holds even
// if it came first, and the name's owner has not joined or has left. The refusal is in the log, at the agent and in
// the list.
func TestNamesThatAreNotItsOwn(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("evil", "x", "evil/*"), declared("west", "w", "default/*"), declared("prod", "p", "prod/*"))
	evil := offering(t, f, pool, "evil", "x",
		protocol.Function{Name: "evil/x", Model: "chat", Aliases: []api.ModelName{"gpt-4o", "prod/chat", "chat:latest", "google/gemma"}, Adapters: []api.ModelName{"lora"}},
		protocol.Function{Name: "evil/code", Model: "code"})
	stolen := []string{"chat", "chat:latest", "gpt-4o", "lora", "code", "x", "prod/chat", "default/chat", "google/gemma"}
	none := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			if code, body := f.ask(t, name); body == "evil" || code != http.StatusNotFound {
				t.Errorf("%s: %s: %d %s, want 404", when, name, code, body)
			}
		}
	}
	none("alone", stolen...)
	for _, name := range []string{"evil/x", "evil/code"} {
		if code, body := f.ask(t, name); code != http.StatusOK || body != "evil" {
			t.Errorf("%s: %d %s, want its own function", name, code, body)
		}
	}
	f.logged.has(t, "WARN", "a cluster offers what it may not serve", "cluster=evil", "function=evil/x", "the name gpt-4o is declared for other clusters", "names")
	told := map[string]bool{}
	for len(told) < 6 {
		down, err := evil.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range down.Refused {
			told[string(r.Function)+": "+r.Reason] = true
		}
	}
	var shown []string
	for _, c := range f.List() {
		if c.Name == "evil" {
			shown = c.Refused
		}
	}
	for _, reason := range shown {
		if !told[reason] {
			t.Errorf("shown, and not told: %s", reason)
		}
	}
	if want := "evil/x: the name prod/chat is that of the function prod/chat, which is not here: choose another name"; len(shown) != len(told) || !told[want] {
		t.Errorf("told %v, shown %q, want %q among them", told, shown, want)
	}

	west := offering(t, f, pool, "west", "w", protocol.Function{Name: "default/chat", Model: "chat", Aliases: []api.ModelName{"gpt-4o"}, Adapters: []api.ModelName{"lora"}})
	prod := offering(t, f, pool, "prod", "p", protocol.Function{Name: "prod/chat", Model: "prod/chat"})
	for name, want := range map[string]string{"chat": "west", "gpt-4o": "west", "lora": "west", "default/chat": "west", "prod/chat": "prod"} {
		if code, body := f.ask(t, name); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %s, want %s", name, code, body, want)
		}
	}
	_, _ = west.stream.CloseSend(), prod.stream.CloseSend()
	_, _ = west.ended(), prod.ended()
	offering(t, f, pool, "evil", "x", protocol.Function{Name: "evil/x", Model: "chat", Aliases: []api.ModelName{"gpt-4o", "prod/chat"}, Adapters: []api.ModelName{"lora"}})
	for _, fn := range f.Far("") {
		if fn.Function.Function.Name.Namespace() != "evil" || fn.Function.Function.Model == "evil/x" {
			continue
		}
		if n := fn.Function.Function; len(n.Aliases) > 0 || !strings.HasPrefix(string(n.Model), "evil/") {
			t.Errorf("while the others are away: %+v", n)
		}
	}
}

// TestNamesOfOneOperator: clusters of one operator need no declaration of names, nor do clusters whose names are
// declared. The order of joining does not decide between a cluster with a declared name and one that may have it as
// well.
func TestNamesOfOneOperator(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("one", "1", "default/*"), declared("two", "2", "default/*"), named(declared("team", "t", "team/*"), "llama", "gpt-*", "team-lora"))
	offering(t, f, pool, "one", "1",
		protocol.Function{Name: "default/a", Model: "chat", Aliases: []api.ModelName{"Qwen/Qwen2.5", "gpt-4o", "both"}, Adapters: []api.ModelName{"a-lora"}},
		protocol.Function{Name: "default/c", Model: "c"})
	ask := func(when string, want map[string]string) {
		t.Helper()
		for name, cluster := range want {
			if code, body := f.ask(t, name); code != http.StatusOK || body != cluster {
				t.Errorf("%s: %s: %d %s, want %s", when, name, code, body, cluster)
			}
		}
	}
	ask("one alone", map[string]string{"chat": "one", "Qwen/Qwen2.5": "one", "gpt-4o": "one", "both": "one", "a-lora": "one", "c": "one", "a": "one", "default/a": "one"})
	offering(t, f, pool, "two", "2", protocol.Function{Name: "default/chat", Model: "llama-2", Aliases: []api.ModelName{"both"}})
	offering(t, f, pool, "team", "t", protocol.Function{Name: "team/llama", Model: "llama", Aliases: []api.ModelName{"gpt-4o"}, Adapters: []api.ModelName{"team-lora"}})
	f.logged.has(t, "WARN", "cluster=one", "function=default/a", "the name chat is that of default/chat")
	f.logged.has(t, "WARN", "cluster=one", "function=default/a", "the name gpt-4o is that of team/llama")
	f.logged.has(t, "WARN", "cluster=two", "function=default/chat", "the name both is that of default/a")
	ask("all", map[string]string{
		"chat": "two", "llama-2": "two", // the function itself
		"gpt-4o": "team", "llama": "team", "team-lora": "team", "team/llama": "team", // declared
		"both": "one", "Qwen/Qwen2.5": "one", "a": "one", "c": "one", // the first of equals
	})
}

// TestNamesOfNobody: a name that no cluster declares goes to the first function that wants it, and never to one that
// wants another's.
func TestNamesOfNobody(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "east/*"), declared("north", "n", "north/*"))
	offering(t, f, pool, "east", "e", protocol.Function{Name: "east/x", Model: "x", Aliases: []api.ModelName{"chat", "google/gemma"}}, protocol.Function{Name: "east/chat", Model: "chat"})
	offering(t, f, pool, "north", "n", protocol.Function{Name: "north/x", Model: "x"})
	f.logged.has(t, "WARN", "cluster=north", "the name x is that of east/x")
	for name, want := range map[string]string{"x": "east", "google/gemma": "east", "north/x": "north", "east/chat": "east", "chat": "", "default/chat": ""} {
		code, body := f.ask(t, name)
		if want == "" && code != http.StatusNotFound || want != "" && (code != http.StatusOK || body != want) {
			t.Errorf("%s: %d %s, want %q", name, code, body, want)
		}
	}
}
