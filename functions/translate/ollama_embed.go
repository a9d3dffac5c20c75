package translate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// ollamaVectors is an answer of /api/embed.
type ollamaVectors struct {
	Model   string        `json:"model"`
	Vectors [][]float32   `json:"embeddings"`
	Total   time.Duration `json:"total_duration"`
	Load    time.Duration `json:"load_duration"` // 0: the model was loaded when the request came here
	Prompt  int           `json:"prompt_eval_count"`
}

// ollamaVector is an answer of /api/embeddings, which came before it.
type ollamaVector struct {
	Vector []float32 `json:"embedding"`
}

// fromEmbed makes the body of a request for embeddings out of one of /api/embed. An input that is too long is cut at its
// end unless the client says otherwise, as it is with Ollama.
func fromEmbed(h *Handler, body []byte) ([]byte, shape, error) {
	in, name, err := h.fromOllama(body, "truncate")
	if err != nil {
		return nil, shape{}, err
	}
	var many []string
	if err := in.texts("input", &many); err != nil {
		return nil, shape{}, err
	}
	cut, dimensions := true, 0
	for field, to := range map[string]any{"truncate": &cut, "dimensions": &dimensions} {
		if err := in.take(field, to); err != nil {
			return nil, shape{}, err
		}
	}
	answer := ollamaVectors{Model: name, Vectors: [][]float32{}}
	if len(many) == 0 {
		return nil, loads(answer), nil
	}
	if cut {
		in.put("truncate_prompt_tokens", -1)
		in.put("truncation_side", "right")
	}
	if dimensions > 0 {
		in.put("dimensions", dimensions)
	}
	began := time.Now()
	asked, err := in.vectors(many)
	return asked, shape{of: target{path: pathVectors}, answer: func(body []byte) (any, bool) {
		got, is := readVectors(body, len(many))
		answer.Vectors, answer.Prompt, answer.Total = got.vectors, got.tokens, time.Since(began)
		return answer, is
	}}, err
}

// fromEmbeddings makes one out of a body of /api/embeddings: it has one text, whose vector is told as the model makes it.
func fromEmbeddings(h *Handler, body []byte) ([]byte, shape, error) {
	in, _, err := h.fromOllama(body)
	if err != nil {
		return nil, shape{}, err
	}
	var prompt string
	if err := in.take("prompt", &prompt); err != nil {
		return nil, shape{}, err
	}
	if prompt == "" {
		return nil, loads(ollamaVector{[]float32{}}), nil
	}
	in.put("normalize", false)
	asked, err := in.vectors([]string{prompt})
	return asked, shape{of: target{path: pathVectors}, answer: func(body []byte) (any, bool) {
		got, is := readVectors(body, 1)
		if !is {
			return nil, false
		}
		return ollamaVector{got.vectors[0]}, true
	}}, err
}

// fromShow asks the engine, which has this path too, by the model's own name.
func fromShow(h *Handler, body []byte) ([]byte, shape, error) {
	in, name, err := h.fromOllama(body, "verbose")
	if err != nil {
		return nil, shape{}, err
	}
	if name == "" {
		return nil, shape{}, api.BadRequest("model", "model is required")
	}
	if in.has("system") && string(bytes.TrimSpace(in["system"])) != `""` {
		return nil, shape{}, api.BadRequest("system", "system can't be kept: what is told of a model is its file's")
	}
	asked, err := json.Marshal(in)
	return asked, shape{of: target{path: pathShow}, answer: func(body []byte) (any, bool) {
		return json.RawMessage(bytes.TrimSpace(body)), json.Valid(body)
	}}, err //nolint:wrapcheck // of JSON that was read
}

// loads is the answer to a request that only wants the model to be loaded: that the runtime lists its models shows it.
func loads(answer any) shape {
	return shape{of: target{path: "/v1/models", method: http.MethodGet}, answer: func([]byte) (any, bool) { return answer, true }}
}

// texts takes a text, or a list of them, out of a field. No text is as good as none.
func (o object) texts(field string, to *[]string) error {
	var one string
	if o.has(field) && json.Unmarshal(o[field], &one) == nil {
		delete(o, field)
		if one != "" {
			*to = []string{one}
		}
		return nil
	}
	return o.take(field, to)
}

// vectors makes the body of a request for embeddings of what is left of one of Ollama's. They are asked for in base64:
// what is kept until it is whole takes half the memory.
func (o object) vectors(of []string) ([]byte, error) {
	o.put("input", of)
	o.put("encoding_format", "base64")
	return json.Marshal(o) //nolint:wrapcheck // of JSON that was read
}

// embeddings are what a runtime answers.
type embeddings struct {
	vectors [][]float32
	tokens  int
}

// readVectors reads the answer to n texts, in their order; false: it is none. A runtime may send numbers, base64 or not;
// what is no number can't be told as one.
func readVectors(body []byte, n int) (e embeddings, is bool) {
	var in struct {
		Data []struct {
			Index  int
			Vector json.RawMessage `json:"embedding"`
		}
		Usage usage
	}
	if json.Unmarshal(body, &in) != nil || len(in.Data) != n {
		return e, false
	}
	e.vectors, e.tokens = make([][]float32, n), in.Usage.Prompt
	for _, d := range in.Data {
		if d.Index < 0 || d.Index >= n || e.vectors[d.Index] != nil {
			return e, false
		}
		var encoded []byte
		if json.Unmarshal(d.Vector, &e.vectors[d.Index]) == nil && e.vectors[d.Index] != nil {
			continue
		}
		if json.Unmarshal(d.Vector, &encoded) != nil || len(encoded) == 0 || len(encoded)%4 != 0 {
			return e, false
		}
		v := make([]float32, len(encoded)/4)
		for i := range v {
			if v[i] = math.Float32frombits(binary.LittleEndian.Uint32(encoded[4*i:])); v[i]-v[i] != 0 { // infinite, or none
				return e, false
			}
		}
		e.vectors[d.Index] = v
	}
	return e, true
}
