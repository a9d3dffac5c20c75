package adapters

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// card is OpenAI's model object, with vLLM's additions that clients read.
type card struct {
	ID      api.ModelName `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	OwnedBy string        `json:"owned_by"`
	// Root is the name that the model is an alias of; an adapter's is its own.
	Root api.ModelName `json:"root"`
	// Parent is the model that an adapter belongs to.
	Parent *api.ModelName `json:"parent"`
	// MaxModelLen is the longest context, where the runtime says it.
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

// cards are the model's names, and the adapters that are loaded or will be.
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
			continue // nobody can use it
		}
		c := of(a.Name, a.Name, a.created)
		c.Parent = &a.Parent
		cards = append(cards, c)
	}
	return cards
}

const (
	askTimeout = 500 * time.Millisecond
	mostAsked  = 3 // a wake must not wait for a runtime that never answers
	maxCards   = 1 << 20
)

// askRuntime reads what the runtime says of its model, at each wake until it has
// answered. That it says nothing is no failure.
func (r *Registry) askRuntime(ctx context.Context, e api.Endpoint) {
	r.mu.Lock()
	done := r.card != nil || r.asked >= mostAsked
	r.asked++
	r.mu.Unlock()
	if done || r.cfg.Transport == nil {
		return
	}
	c := &card{}
	if err := r.readCard(ctx, e, c); err != nil {
		r.cfg.Logger.Debug("the runtime does not list its models", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.card = c
}

// readCard reads the runtime's card of the model, or its first.
func (r *Registry) readCard(ctx context.Context, e api.Endpoint, into *card) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL("/v1/models"), nil)
	if err != nil {
		return err
	}
	resp, err := r.cfg.Transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID          api.ModelName `json:"id"`
			MaxModelLen int           `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCards)).Decode(&list); err != nil {
		return err
	}
	for i, c := range list.Data {
		if i == 0 || c.ID == r.cfg.Model {
			into.MaxModelLen = max(0, c.MaxModelLen)
		}
	}
	return nil
}
