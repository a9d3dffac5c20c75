package adapters

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// usage records which adapters requests use. [Registry.mu] guards it.
type usage struct {
	running map[api.ModelName]int
	last    map[api.ModelName]time.Time // when a request began or ended to use it
	freed   chan struct{}               // closed when the next adapter is no longer in use; nil while nobody waits for it
}

func (u *usage) begin(name api.ModelName) {
	if u.running == nil {
		u.running, u.last = map[api.ModelName]int{}, map[api.ModelName]time.Time{}
	}
	u.running[name]++
	u.last[name] = time.Now()
}

func (u *usage) end(name api.ModelName) bool {
	u.last[name] = time.Now()
	if u.running[name]--; u.running[name] > 0 {
		return false
	}
	delete(u.running, name)
	if u.freed != nil {
		close(u.freed)
		u.freed = nil
	}
	return true
}

func (u *usage) wait() <-chan struct{} {
	if u.freed == nil {
		u.freed = make(chan struct{})
	}
	return u.freed
}

const unloadTime = 5 * time.Second

// Hold keeps an adapter that [Registry.Of] has named loaded until done is called, and loads it first if it is on standby, in the place of
// the least recently used one that no request uses. If all are in use, it blocks until one is free or ctx ends. The caller must hold a
// slot in the runtime from before the call until after done. The error is an *[api.Error], or the cause of ctx's end.
func (r *Registry) Hold(ctx context.Context, name api.ModelName) (done func(), err error) {
	done = func() { r.leave(name) }
	if r.loadedNow(name) {
		return done, nil
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.end()
	if r.loadedNow(name) {
		return done, nil
	}
	r.mu.Lock()
	i, e := r.find(name), r.endpoint
	var a Adapter
	if i >= 0 {
		a = r.adapters[i]
	}
	r.mu.Unlock()
	if i < 0 || a.State == Failed {
		return nil, &api.Error{Status: http.StatusNotFound, Code: api.CodeModelNotFound, Param: "model", Message: "the adapter " + string(name) + " is not here any more: GET /v1/models lists what is"}
	}
	if _, err := r.makeRoom(ctx, e, true); err != nil {
		return nil, refusal(ctx, "make room for", name, err)
	}
	if err := r.load(ctx, e, &a); err != nil {
		return nil, refusal(ctx, "load", name, err)
	}
	a.State, a.Message = Loaded, ""
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(a)
	r.use.begin(name)
	return done, nil
}

func (r *Registry) loadedNow(name api.ModelName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(name)
	if i < 0 || r.adapters[i].State != Loaded {
		return false
	}
	r.use.begin(name)
	return true
}

// leave ends a use of an adapter. The last use of a removed one unloads it.
func (r *Registry) leave(name api.ModelName) {
	r.mu.Lock()
	removed := r.use.end(name) && slices.Contains(r.unload, name)
	r.mu.Unlock()
	if !removed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), unloadTime)
	defer cancel()
	if r.begin(ctx) != nil {
		return // unloaded when the runtime next wakes
	}
	defer r.end()
	r.mu.Lock()
	e, still := r.endpoint, slices.Contains(r.unload, name) && r.use.running[name] == 0
	r.mu.Unlock()
	if !still {
		return
	}
	if err := r.unloadRemoved(ctx, e, name); err != nil {
		r.cfg.Logger.Warn("an adapter that was removed can't be unloaded", "adapter", name, "error", err)
	}
}

// The caller holds change.
func (r *Registry) unloadRemoved(ctx context.Context, e api.Endpoint, name api.ModelName) error {
	err := r.cfg.Loader.UnloadAdapter(ctx, e, name)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unload = slices.DeleteFunc(r.unload, func(n api.ModelName) bool { return n == name })
	}
	return err
}

// makeRoom unloads adapters until one more fits. If all are in use it waits for one, or returns false without wait. The caller holds
// change.
func (r *Registry) makeRoom(ctx context.Context, e api.Endpoint, wait bool) (bool, error) {
	for {
		r.mu.Lock()
		victim, full := r.victim()
		drop := r.drop
		if slices.Contains(r.unload, victim) {
			drop = r.unloadRemoved
		}
		var freed <-chan struct{}
		if full && victim == "" && wait {
			freed = r.use.wait()
		}
		r.mu.Unlock()
		switch {
		case !full:
			return true, nil
		case victim != "":
			if err := drop(ctx, e, victim); err != nil {
				return false, err
			}
			continue
		case !wait:
			return false, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// drop puts an adapter on standby and unloads it, so that new requests for it wait for the change, unless a request uses it. The caller
// holds change.
func (r *Registry) drop(ctx context.Context, e api.Endpoint, name api.ModelName) error {
	set := func(s State) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s == Standby && r.use.running[name] > 0 {
			return false
		}
		r.adapters[r.find(name)].State = s
		return true
	}
	if !set(Standby) {
		return nil
	}
	err := r.cfg.Loader.UnloadAdapter(ctx, e, name)
	if err != nil {
		set(Loaded)
	}
	return err
}

// victim reports whether there is no room for one more adapter, and returns the least recently used one that no request uses; empty: all
// are in use. The caller holds mu.
func (r *Registry) victim() (victim api.ModelName, full bool) {
	loaded := len(r.unload)
	for _, a := range r.adapters {
		if a.State != Loaded || a.brought {
			continue
		}
		loaded++
		if r.use.running[a.Name] == 0 && (victim == "" || r.use.last[a.Name].Before(r.use.last[victim])) {
			victim = a.Name
		}
	}
	if r.cfg.Room <= 0 || loaded < r.cfg.Room {
		return "", false
	}
	if i := slices.IndexFunc(r.unload, func(n api.ModelName) bool { return r.use.running[n] == 0 }); i >= 0 {
		victim = r.unload[i]
	}
	return victim, true
}

// order returns the adapters in the order of loading: first those that a slept runtime still has, then the most recently used, then by
// name. The caller holds mu.
func (r *Registry) order() []Adapter {
	list := slices.Clone(r.adapters)
	slices.SortStableFunc(list, func(a, b Adapter) int {
		if la, lb := a.State == Loaded, b.State == Loaded; la != lb {
			if la {
				return -1
			}
			return 1
		}
		if c := r.use.last[b.Name].Compare(r.use.last[a.Name]); c != 0 {
			return c
		}
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return list
}

type card struct {
	ID          api.ModelName  `json:"id"`
	Object      string         `json:"object"`
	Created     int64          `json:"created"`
	OwnedBy     string         `json:"owned_by"`
	Root        api.ModelName  `json:"root"`
	Parent      *api.ModelName `json:"parent"`
	MaxModelLen int            `json:"max_model_len,omitempty"`
}

// Models answers GET /v1/models and GET /v1/models/{id}, whatever the state of the runtime.
func (r *Registry) Models(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		proxy.RefuseMethod(w, req, "GET, HEAD")
		return
	}
	cards := r.cards()
	id, one := strings.CutPrefix(req.URL.Path, "/v1/models/")
	if !one {
		api.WriteJSON(w, http.StatusOK, struct {
			Object string `json:"object"`
			Data   []card `json:"data"`
		}{"list", cards})
		return
	}
	for _, c := range cards {
		if string(c.ID) == id {
			api.WriteJSON(w, http.StatusOK, c)
			return
		}
	}
	api.WriteError(w, &api.Error{Status: http.StatusNotFound, Code: api.CodeModelNotFound, Param: "model", Message: "there is no model " + id + " here: GET /v1/models lists them"})
}

func (r *Registry) cards() []card {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := 0
	if r.card != nil {
		length = r.card.MaxModelLen
	}
	of := func(name, root api.ModelName, created time.Time) card {
		return card{ID: name, Object: "model", Created: created.Unix(), OwnedBy: "rouse", Root: root, MaxModelLen: length}
	}
	cards := []card{of(r.cfg.Model, r.cfg.Model, r.created)}
	for _, name := range r.cfg.Aliases {
		cards = append(cards, of(name, r.cfg.Model, r.created))
	}
	for _, a := range r.adapters {
		if a.State == Failed {
			continue
		}
		c := of(a.Name, a.Name, a.created)
		c.Parent = &a.Parent
		cards = append(cards, c)
	}
	return cards
}

// mostAsked bounds how often a runtime is asked: a wake must not wait for one that never answers.
const mostAsked = 3

// Poll asks a runtime that brings adapters for its list, if it was restored once: its owner may have loaded some. A failure changes
// nothing.
func (r *Registry) Poll(ctx context.Context) {
	if !r.cfg.Brings || !r.restored() || r.begin(ctx) != nil {
		return
	}
	defer r.end()
	r.mu.Lock()
	e := r.endpoint
	r.mu.Unlock()
	r.askRuntime(ctx, e)
}

// askRuntime reads the runtime's list of models: at each wake until it has answered, or each time if it brings adapters. The caller holds
// change.
func (r *Registry) askRuntime(ctx context.Context, e api.Endpoint) {
	r.mu.Lock()
	done := !r.cfg.Brings && (r.card != nil || r.asked >= mostAsked)
	r.asked++
	r.mu.Unlock()
	if done || r.cfg.Transport == nil {
		return
	}
	list, err := runtime.Models(ctx, r.cfg.Transport, e)
	if err != nil {
		r.cfg.Logger.Debug("the runtime does not list its models", "error", err)
		return
	}
	c := &card{}
	for i, said := range list {
		if i == 0 || said.ID == r.cfg.Model {
			c.MaxModelLen = max(0, said.MaxModelLen)
		}
	}
	r.mu.Lock()
	r.card = c
	var brought []api.ModelName
	if r.cfg.Brings {
		brought = r.takeBrought(list)
	}
	r.mu.Unlock()
	if k, knows := r.cfg.Loader.(interface{ KnowAdapters([]api.ModelName) }); knows && r.cfg.Brings {
		k.KnowAdapters(brought)
	}
}

// takeBrought records the adapters that a runtime lists (cards with a parent), and returns the ones that it has loaded itself. The caller
// holds mu.
func (r *Registry) takeBrought(list []runtime.Model) (brought []api.ModelName) {
	r.adapters = slices.DeleteFunc(r.adapters, func(a Adapter) bool {
		return a.brought && !slices.ContainsFunc(list, func(c runtime.Model) bool { return c.Parent != "" && c.ID == a.Name })
	})
	for _, c := range list {
		if c.Parent == "" || r.find(c.ID) >= 0 || slices.Contains(r.unload, c.ID) || len(r.adapters) >= mostBrought {
			continue
		}
		if err := r.checkName(c.ID); err != nil {
			r.cfg.Logger.Warn("an adapter of the runtime can't be called as it is", "adapter", c.ID, "error", err)
			continue
		}
		r.put(Adapter{Name: c.ID, Path: c.Root, Parent: r.cfg.Model, State: Loaded, brought: true, created: time.Now()})
	}
	for _, a := range r.adapters {
		if a.brought {
			brought = append(brought, a.Name)
		}
	}
	return brought
}

const mostBrought = 1000
