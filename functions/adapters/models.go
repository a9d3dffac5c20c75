package adapters

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// card is OpenAI's model object, with those additions of vLLM that clients read.
type card struct {
	ID      api.ModelName `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	OwnedBy string        `json:"owned_by"`
	// Root is the name that the model is an alias of; an adapter's is its own.
	Root api.ModelName `json:"root"`
	// Parent is the model that an adapter belongs to.
	Parent *api.ModelName `json:"parent"`
	// MaxModelLen is the longest context, if the runtime reports it.
	MaxModelLen int `json:"max_model_len,omitempty"`
}

// Models answers GET /v1/models and GET /v1/models/{id}, whatever the state of the runtime.
func (r *Registry) Models(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want GET", req.Method, req.URL.Path))
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

// cards returns the model's names, and the adapters that are loaded or will be.
func (r *Registry) cards() []card {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := 0 // tokens of the model's context; 0: unknown
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
			continue // nobody can use it
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

// askRuntime reads the runtime's list of models: at each wake until it has answered, or each time if it brings adapters. A failure is
// ignored. The caller holds change.
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

// takeBrought records the adapters that a runtime lists (cards with a parent), and returns the ones that it has loaded itself. The
// caller holds mu.
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

// mostBrought bounds the number of adapters that a runtime can add to the list.
const mostBrought = 1000
