package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// names are the clients' names of a model, and the server's own. It is safe for many goroutines.
type names struct {
	clients []string // the model's own first
	// learn: the server is asked for its name; else it accepts the clients'.
	learn bool
	// declared is the server's name in the function's declaration.
	declared string
	own      atomic.Pointer[ownName] // nil: unknown, or not needed
}

type ownName struct {
	name string
	json []byte
}

func clientNames(cfg Config) []string {
	out := []string{string(cfg.Model)}
	for _, n := range append(slices.Clone(cfg.Aliases), api.DefaultModel) {
		if !slices.Contains(out, string(n)) {
			out = append(out, string(n))
		}
	}
	return out
}

func (n *names) set(own string) {
	if own == "" {
		n.own.Store(nil)
		return
	}
	raw, _ := json.Marshal(own)
	n.own.Store(&ownName{own, raw})
}

func (n *names) forget() { n.set(n.declared) }

// at returns the name for calls to the server.
func (n *names) at(ctx context.Context, c *client, e api.Endpoint) (string, error) {
	if own := n.own.Load(); own != nil {
		return own.name, nil
	}
	if !n.learn {
		return n.clients[0], nil
	}
	model, err := c.firstModel(ctx, e)
	switch {
	case err != nil && !answered(err):
		return "", err
	case err != nil:
		return n.clients[0], nil // the next probe asks again
	}
	n.set(model)
	return model, nil
}

func (n *names) known(name string) bool { return slices.Contains(n.clients, name) }

// rename replaces a client's name in "model" by the server's own.
func (n *names) rename(body *jsonfield.Object) {
	own := n.own.Load()
	if own == nil {
		return
	}
	if raw := body.Bytes(); isForm(raw) {
		body.Replace(setInForm(raw, "model", func(asked string) string {
			if n.known(asked) {
				return own.name
			}
			return asked
		}))
		return
	}
	if asked, found := modelOf(body); found && n.known(asked) {
		body.Set("model", own.json)
	}
}

// none reports whether a field is missing, null or "".
func none(raw []byte, found bool) bool {
	return !found || string(raw) == "null" || string(raw) == `""`
}

// named also sets a missing name.
func (n *names) named(path string, body *jsonfield.Object) {
	if own := n.own.Load(); own != nil && strings.HasPrefix(path, "/v1/") && !isForm(body.Bytes()) && none(body.Find("model")) {
		body.Set("model", own.json)
		return
	}
	n.rename(body)
}

func modelOf(body *jsonfield.Object) (name string, found bool) { return text(body.Find("model")) }

func text(raw []byte, found bool) (string, bool) {
	if !found || !bytes.HasPrefix(raw, []byte{'"'}) {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

func unknownModel(name string, n *names) *api.Error {
	return &api.Error{
		Status: 404, Code: api.CodeModelNotFound, Param: "model",
		Message: "the model " + quote(name) + " is not here: this function serves " + quote(n.clients[0]),
	}
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}
