package serve

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// Scores of pairs of texts, in vLLM's formats. As with vLLM's embedding models, a score is the cosine of two vectors.
// Cross-encoders are not supported.

// scoreRequest is the body of POST /v1/score.
type scoreRequest struct {
	vectorOptions
	One stringList `json:"text_1"`
	Two stringList `json:"text_2"`
}

// rerankRequest is the body of POST /v1/rerank.
type rerankRequest struct {
	vectorOptions
	Query     string     `json:"query"`
	Documents []document `json:"documents"`
	Top       *int       `json:"top_n"`
}

// document is a text, or an object with one.
type document string

func (document) wants() string { return "a string or an object with a text" }

// UnmarshalJSON implements json.Unmarshaler.
func (d *document) UnmarshalJSON(data []byte) error {
	var in struct {
		Text *string `json:"text"`
	}
	switch kindOf(data) {
	case "string":
		return json.Unmarshal(data, (*string)(d))
	case "object":
		if json.Unmarshal(data, &in) == nil && in.Text != nil {
			*d = document(*in.Text)
			return nil
		}
	}
	return mismatch[document](data)
}

// score answers POST /v1/score: it scores each pair of texts, or one text with each of the others.
func (s *Server) score(w http.ResponseWriter, r *http.Request) error {
	var q scoreRequest
	paid, model, adapter, err := s.readFor(w, r, &q, &q.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	switch {
	case len(q.One) == 0:
		return badRequest("text_1", "text_1 is missing or empty: want a text, or texts")
	case len(q.Two) == 0:
		return badRequest("text_2", "text_2 is missing or empty: want a text, or texts")
	case len(q.One) > 1 && len(q.One) != len(q.Two):
		return badRequest("text_1", "text_1 has %d texts and text_2 %d: want one, or as many", len(q.One), len(q.Two))
	}
	texts := append(slices.Clone(q.One), q.Two...)
	e := q.embedding(texts)
	vectors, used, err := s.vectors(w, r, paid, e, adapter)
	if err != nil {
		return renamed(err, "input", "text_2")
	}
	type scored struct {
		Index  int     `json:"index"`
		Object string  `json:"object"`
		Score  float64 `json:"score"`
	}
	data := make([]scored, len(q.Two))
	for i := range data {
		data[i] = scored{i, "score", cosine(e.shape(vectors[min(i, len(q.One)-1)]), e.shape(vectors[len(q.One)+i]))}
	}
	return writeJSON(w, map[string]any{"id": "score-" + rand.Text(), "object": "list", "created": time.Now().Unix(), "model": model, "data": data, "usage": tokensOf(used)})
}

// rerank answers POST /v1/rerank: it returns the documents, most similar first.
func (s *Server) rerank(w http.ResponseWriter, r *http.Request) error {
	var q rerankRequest
	paid, model, adapter, err := s.readFor(w, r, &q, &q.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	switch {
	case q.Query == "":
		return badRequest("query", "query is missing or empty: want a text")
	case len(q.Documents) == 0:
		return badRequest("documents", "documents is missing or empty: want texts")
	case q.Top != nil && *q.Top < 0:
		return badRequest("top_n", "top_n is %d: want how many documents are to be told, or 0 for all", *q.Top)
	}
	texts := []string{q.Query}
	for _, d := range q.Documents {
		texts = append(texts, string(d))
	}
	e := q.embedding(texts)
	vectors, used, err := s.vectors(w, r, paid, e, adapter)
	if err != nil {
		return renamed(err, "input", "documents")
	}
	type result struct {
		Index    int               `json:"index"`
		Document map[string]string `json:"document"`
		Score    float64           `json:"relevance_score"`
	}
	results := make([]result, len(q.Documents))
	for i, d := range q.Documents {
		results[i] = result{i, map[string]string{"text": string(d)}, cosine(e.shape(vectors[0]), e.shape(vectors[1+i]))}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.Score, a.Score) })
	if top := or(q.Top, 0); top > 0 {
		results = results[:min(top, len(results))]
	}
	return writeJSON(w, map[string]any{"id": "rerank-" + rand.Text(), "model": model, "results": results, "usage": tokensOf(used)})
}

func tokensOf(used int) map[string]int {
	return map[string]int{"prompt_tokens": used, "total_tokens": used}
}

// embedding returns a request for the embeddings of texts.
func (o *vectorOptions) embedding(texts []string) *embeddingRequest {
	e := &embeddingRequest{vectorOptions: *o}
	for _, t := range texts {
		e.Input = append(e.Input, textOrTokens{text: t})
	}
	return e
}

// cosine returns the cosine of two vectors of length 1.
func cosine(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return max(-1, min(1, sum))
}
