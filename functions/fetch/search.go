package fetch

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// Found is a model of the hub, with GGUF files, or of Ollama's library.
type Found struct {
	// Model is hf.co/ORG/NAME or ollama://NAME:TAG.
	Model     string `json:"model"`
	Downloads int    `json:"downloads,omitempty"`
	Gated     bool   `json:"gated,omitempty"`
	// Quants are of a hub's model, Size of one in the library.
	Quants []string  `json:"quants,omitempty"`
	Size   api.Bytes `json:"size,omitempty"`
}

// Search returns the model of that name in Ollama's library, and the hub's, the most downloaded first. The error is the hub's, if the
// library has none.
func Search(ctx context.Context, cfg Config, text string) ([]Found, error) {
	c, err := New(cfg)
	switch text = strings.TrimSpace(text); {
	case err != nil:
		return nil, err
	case cfg.Offline:
		return nil, errors.New("nothing is looked up with HF_HUB_OFFLINE=1")
	}
	found := []Found{}
	var asked sync.WaitGroup
	asked.Go(func() { found = append(found, c.searchLibrary(ctx, text)...) })
	ofHub, err := c.searchHub(ctx, text)
	asked.Wait()
	if len(found) > 0 {
		err = nil
	}
	return append(found, ofHub...), err
}

func (c *Cache) searchLibrary(ctx context.Context, name string) []Found {
	r, err := Parse("ollama://" + strings.ToLower(name))
	if err != nil || r.host != "" {
		return nil
	}
	p, err := (&library{c, r}).plan(ctx)
	if err != nil {
		return nil
	}
	found := Found{Model: "ollama://" + p.name}
	for _, f := range p.files {
		found.Size += f.size
	}
	return []Found{found}
}

func (c *Cache) searchHub(ctx context.Context, text string) (found []Found, err error) {
	query := url.Values{"search": {text}, "filter": {"gguf"}, "sort": {"downloads"}, "direction": {"-1"}, "limit": {"20"}, "expand[]": {"downloads", "gated", "siblings"}}
	var list []struct {
		ID        string       `json:"id"`
		Downloads int          `json:"downloads"`
		Gated     any          `json:"gated"` // false, or a text
		Siblings  []hubSibling `json:"siblings"`
	}
	if err := c.do(ctx, nil, (&hub{c: c}).get(c.cfg.Hub.Endpoint+"/api/models?"+query.Encode()), decode(&list)); err != nil {
		return nil, err
	}
	for _, m := range list {
		var files []string
		for _, s := range m.Siblings {
			files = append(files, s.Name)
		}
		if models := ggufname.Models(files); len(models) > 0 {
			named := slices.DeleteFunc(quants(models), func(label string) bool { return strings.HasSuffix(label, ".gguf") })
			found = append(found, Found{Model: "hf.co/" + m.ID, Downloads: m.Downloads, Gated: m.Gated != nil && m.Gated != false, Quants: named})
		}
	}
	return found, nil
}
