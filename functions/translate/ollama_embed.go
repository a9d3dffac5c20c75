package translate

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"time"
)

// ollamaVectors is an answer of /api/embed.
type ollamaVectors struct {
	Model   string        `json:"model"`
	Vectors [][]float32   `json:"embeddings"`
	Total   time.Duration `json:"total_duration"`
	Load    time.Duration `json:"load_duration"` // 0: the model was loaded when the request came here
	Prompt  int           `json:"prompt_eval_count"`
}

// askEmbed converts a request of /api/embed to one for embeddings. A text that is too long is cut at its end by
// default, as in Ollama.
func askEmbed(h *Handler, in *request) shape {
	cut, dimensions := true, 0
	in.take("truncate", &cut)
	r := h.readOllama(in)
	var texts []string
	var one string
	if in.has("input") && json.Unmarshal(in.object["input"], &one) == nil {
		texts = []string{one}[:min(len(one), 1)] // an empty text counts as no text
	} else {
		in.take("input", &texts)
	}
	in.take("dimensions", &dimensions)
	answer := ollamaVectors{Model: r.model, Vectors: [][]float32{}}
	if len(texts) == 0 {
		return loads(answer)
	}
	if cut {
		in.put("truncate_prompt_tokens", -1)
		in.put("truncation_side", "right")
	}
	if dimensions > 0 {
		in.put("dimensions", dimensions)
	}
	return in.askVectors(texts, func(vectors [][]float32, tokens int) any {
		answer.Vectors, answer.Prompt, answer.Total = vectors, tokens, time.Since(r.began)
		return answer
	})
}

// askEmbeddings converts a request of the older /api/embeddings, for the unnormalised vector of one text.
func askEmbeddings(h *Handler, in *request) shape {
	h.readOllama(in)
	var prompt string
	if in.take("prompt", &prompt); prompt == "" {
		return loads(map[string][]float32{"embedding": {}})
	}
	in.put("normalize", false)
	return in.askVectors([]string{prompt}, func(vectors [][]float32, _ int) any { return map[string][]float32{"embedding": vectors[0]} })
}

// askShow passes a request on to the engine, which has this path too, with the model's own name.
func askShow(h *Handler, in *request) shape {
	if h.readOllama(in).model == "" {
		in.refuse("model", "model is required")
	}
	if in.has("system") && string(in.object["system"]) != `""` {
		in.refuse("system", "system can't be kept: the description of a model comes from its file")
	}
	return shape{path: pathShow, answer: func(body []byte) (any, bool) { return json.RawMessage(body), json.Valid(body) }}
}

// loads answers a request that only loads the model: a runtime that lists its models has loaded it.
func loads(answer any) shape {
	return shape{path: pathModels, answer: func([]byte) (any, bool) { return answer, true }}
}

// askVectors requests the embeddings of texts. It requests base64, so that the answer takes half the memory while it
// is read.
func (r *request) askVectors(texts []string, answer func(vectors [][]float32, tokens int) any) shape {
	r.put("input", texts)
	r.put("encoding_format", "base64")
	return shape{path: pathVectors, answer: func(body []byte) (any, bool) {
		vectors, tokens := readVectors(body, len(texts))
		if vectors == nil {
			return nil, false
		}
		return answer(vectors, tokens), true
	}}
}

// readVectors reads the answer to n texts, in their order; nil: it is invalid. A runtime may send numbers even if
// base64 was requested.
func readVectors(body []byte, n int) (vectors [][]float32, tokens int) {
	var in struct {
		Data []struct {
			Index  int
			Vector json.RawMessage `json:"embedding"`
		}
		Usage usage
	}
	if json.Unmarshal(body, &in) != nil || len(in.Data) != n {
		return nil, 0
	}
	vectors = make([][]float32, n)
	for _, d := range in.Data {
		if d.Index < 0 || d.Index >= n || vectors[d.Index] != nil {
			return nil, 0
		}
		v := &vectors[d.Index]
		if json.Unmarshal(d.Vector, v) == nil && *v != nil {
			continue
		}
		var encoded []byte
		if json.Unmarshal(d.Vector, &encoded) != nil || len(encoded) == 0 || len(encoded)%4 != 0 {
			return nil, 0
		}
		*v = make([]float32, len(encoded)/4)
		for i := range *v {
			x := math.Float32frombits(binary.LittleEndian.Uint32(encoded[4*i:]))
			if x-x != 0 { // infinite or NaN: JSON has no such numbers
				return nil, 0
			}
			(*v)[i] = x
		}
	}
	return vectors, in.Usage.Prompt
}
