package activator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// tenant declares a service with one revision, created so many hours after the first.
func (b *bench) tenant(service api.FunctionName, hour int, model api.ModelName, change func(*api.Function)) {
	f := api.Function{Name: service + "-00001", Service: service, Model: model, Runtime: api.Runtime{Kind: api.RuntimeVLLM}}
	if change != nil {
		change(&f)
	}
	b.a.PutService(service, time.Unix(0, 0).Add(time.Duration(hour)*time.Hour))
	b.a.PutFunction(f)
	b.a.PutTraffic(Traffic{Service: service, Shares: []Share{{Function: f.Name, Percent: 100}}})
}

// finds compares the functions that names lead to; "" is a name without a function.
func (b *bench) finds(want map[string]api.FunctionName) {
	b.t.Helper()
	for name, service := range want {
		t, err := b.a.names.Load().find(name, true)
		switch {
		case service == "" && err == nil:
			b.t.Errorf("%s finds %s, want nobody", name, t.service)
		case service != "" && (err != nil || t.service != service):
			b.t.Errorf("%s: got %+v, %v; want %s", name, t, err, service)
		}
	}
}

// TestAnothersNames: a tenant that wants every name of the others gets none, in any order of events.
func TestAnothersNames(t *testing.T) {
	victims := func(b *bench) {
		b.tenant("victim/chat", 1, "chat", func(f *api.Function) { f.Runtime.Adapters = []api.Adapter{{Name: "fr"}} })
		b.tenant("prod/llama", 2, "llama-70b", func(f *api.Function) { f.Aliases = []api.ModelName{"gpt-4o"} })
		b.tenant("prod/small", 3, "small", func(f *api.Function) { f.VariantOf = "any-size" })
	}
	attacker := func(b *bench) {
		b.a.SetNamespace("quiet", true)
		b.tenant("attacker/x", 4, "chat", func(f *api.Function) {
			f.Aliases = []api.ModelName{"victim/chat", "victim/other", "victim/chat:latest", "chat:latest", "llama", "llama-70b", "gpt-4o", "prod/llama", "prod/any-size", "any-size", "quiet/later", "victim/fr", "own", "openai/gpt-oss-20b"}
			f.Runtime.Adapters = []api.Adapter{{Name: "fr"}, {Name: "victim/adapter"}}
		})
	}
	for name, order := range map[string][]func(*bench){"the attacker last": {victims, attacker}, "the attacker first": {attacker, victims}} {
		t.Run(name, func(t *testing.T) {
			b := startBench(t, nil)
			for _, step := range order {
				step(b)
			}
			b.finds(map[string]api.FunctionName{
				"chat": "victim/chat", "victim/chat": "victim/chat", "fr": "victim/chat",
				"llama": "prod/llama", "llama-70b": "prod/llama", "gpt-4o": "prod/llama", "prod/llama": "prod/llama",
				"any-size": "prod/any-size", "prod/any-size": "prod/any-size", "small": "prod/small",
				"victim/other": "", "quiet/later": "", "victim/fr": "", "victim/adapter": "", "chat:latest": "", "victim/chat:latest": "",
				"own": "attacker/x", "x": "attacker/x", "attacker/x": "attacker/x", "openai/gpt-oss-20b": "attacker/x",
			})
			stats, _ := b.a.Stats("attacker/x-00001")
			for _, want := range []string{
				`the name "chat" of attacker/x finds victim/chat, which was there first: choose another name, or ask for attacker/x`,
				`the name "victim/chat" of attacker/x finds victim/chat, which is called so: choose another name`,
				`the name "quiet/later" of attacker/x is refused: quiet/ is the namespace quiet: choose another name`,
				`the name "fr" of an adapter of attacker/x finds victim/chat, which was there first: choose another name, or ask for attacker/x`,
			} {
				if !slices.Contains(stats.LostNames, want) {
					t.Errorf("it does not say: %s\nbut:\n%s", want, strings.Join(stats.LostNames, "\n"))
				}
			}
			if stats, _ := b.a.Stats("victim/chat-00001"); len(stats.LostNames) > 0 {
				t.Errorf("the victim lost %q", stats.LostNames)
			}
		})
	}
}

// TestNamesComeBack: a service that was refused a name gets it when it is free, and keeps one when another's age
// becomes known.
func TestNamesComeBack(t *testing.T) {
	b := startBench(t, nil)
	b.tenant("a/chat", 1, "chat", nil)
	b.tenant("b/chat", 2, "chat", nil)
	b.finds(map[string]api.FunctionName{"chat": "a/chat", "b/chat": "b/chat"})
	models := map[api.ModelName]api.FunctionName{}
	for _, m := range b.a.names.Load().models {
		models[m.name] = m.t.service
	}
	if models["chat"] != "a/chat" || models["b/chat"] != "b/chat" {
		t.Errorf("the list of models has %v, want b/chat by its full name", models)
	}
	b.a.RemoveFunction("a/chat-00001")
	b.a.RemoveService("a/chat")
	b.finds(map[string]api.FunctionName{"chat": "b/chat", "a/chat": ""})
	b.function("late", func(f *api.Function) { f.Model = "chat" }) // of unknown age
	b.finds(map[string]api.FunctionName{"chat": "b/chat"})
	b.a.PutService("default/late", time.Unix(1, 0))
	b.finds(map[string]api.FunctionName{"chat": "default/late"})
	b.a.SetNamespace("gone", true)
	b.function("g", func(f *api.Function) { f.Model = "gone/model" })
	b.finds(map[string]api.FunctionName{"gone/model": ""})
	b.a.SetNamespace("gone", false)
	b.finds(map[string]api.FunctionName{"gone/model": "default/g"})
}
