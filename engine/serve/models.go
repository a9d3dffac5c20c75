package serve

import (
	"encoding/json"
	"net/http"
)

type modelCard struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Root        string   `json:"root"`
	Parent      *string  `json:"parent"`
	MaxModelLen int      `json:"max_model_len"`
	Permission  []string `json:"permission"`
}

func (s *Server) card(name string) modelCard {
	return modelCard{
		ID: name, Object: "model", Created: s.created, OwnedBy: "rouse",
		Root: s.cfg.Names[0], MaxModelLen: s.engine.Context(), Permission: []string{},
	}
}

// cards are of the model's names, then its adapters.
func (s *Server) cards() (cards []modelCard) {
	for _, n := range s.cfg.Names {
		cards = append(cards, s.card(n))
	}
	for _, a := range s.engine.Adapters() {
		c := s.card(a.Name)
		c.Root, c.Parent = a.Path, &s.cfg.Names[0]
		cards = append(cards, c)
	}
	return cards
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]any{"object": "list", "data": s.cards()})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if id == "" {
		return s.models(w, r)
	}
	for _, c := range s.cards() {
		if c.ID == id {
			return writeJSON(w, c)
		}
	}
	if _, _, err := s.modelName(id); err != nil {
		return err
	}
	return writeJSON(w, s.card(id)) // an adapter loaded just now
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
	return nil
}
