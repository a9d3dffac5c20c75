package serve

import (
	"encoding/json"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// modelCard is OpenAI's model object with vLLM's additions.
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

// models answers GET /v1/models: every name of the one model.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	cards := make([]modelCard, len(s.cfg.Names))
	for i, n := range s.cfg.Names {
		cards[i] = s.card(n)
	}
	return writeJSON(w, map[string]any{"object": "list", "data": cards})
}

// model answers GET /v1/models/{id}. A name may contain slashes.
func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if id == "" { // only a slash
		return s.models(w, r)
	}
	name, err := s.modelName(id)
	if err != nil {
		return err
	}
	return writeJSON(w, s.card(name))
}

// embeddings answers POST /v1/embeddings.
func (s *Server) embeddings(http.ResponseWriter, *http.Request) error {
	return api.BadRequest("model", "the model %s generates text and has no embeddings: ask a model that has", quote(s.cfg.Names[0]))
}

// writeJSON answers 200 with v.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have left: nothing to do about it
	return nil
}
