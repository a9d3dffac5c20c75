package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

type scoreRequest struct {
	vectorOptions
	One stringList `json:"text_1"`
	Two stringList `json:"text_2"`
}

type rerankRequest struct {
	vectorOptions
	Query     string     `json:"query"`
	Documents []document `json:"documents"`
	Top       *int       `json:"top_n"`
}

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

// score takes pairs of texts, or one text with each of the others.
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
	scores, used, err := s.scores(w, r, paid, &q.vectorOptions, adapter, q.One, q.Two)
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
		data[i] = scored{i, "score", scores[i]}
	}
	return writeJSON(w, map[string]any{"id": "score-" + rand.Text(), "object": "list", "created": time.Now().Unix(), "model": model, "data": data, "usage": tokensOf(used)})
}

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
	texts := make([]string, len(q.Documents))
	for i, d := range q.Documents {
		texts[i] = string(d)
	}
	scores, used, err := s.scores(w, r, paid, &q.vectorOptions, adapter, []string{q.Query}, texts)
	if err != nil {
		return renamed(err, "input", "documents")
	}
	type result struct {
		Index    int               `json:"index"`
		Document map[string]string `json:"document"`
		Score    float64           `json:"relevance_score"`
	}
	results := make([]result, len(q.Documents))
	for i, text := range texts {
		results[i] = result{i, map[string]string{"text": text}, scores[i]}
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

// scores compares each text of two with the text of one at the same index, or the only one. A score is the cosine of
// two vectors; of a model that ranks, the sigmoid of its number.
func (s *Server) scores(w http.ResponseWriter, r *http.Request, paid *inbound.Body, o *vectorOptions, adapter string, one, two []string) (scores []float64, used int, err error) {
	e := &embeddingRequest{vectorOptions: *o, pairs: s.engine.Model().Ranks}
	texts := two
	encode := func(ctx context.Context, i int) ([]int32, error) { return s.inputTokens(ctx, e.Input[i], e) }
	if e.pairs {
		encode = func(ctx context.Context, i int) ([]int32, error) {
			return s.pairTokens(ctx, one[min(i, len(one)-1)], two[i], e)
		}
	} else {
		texts = slices.Concat(one, two)
	}
	for _, t := range texts {
		e.Input = append(e.Input, textOrTokens{text: t})
	}
	vectors, used, err := s.vectors(w, r, paid, e, adapter, encode)
	if err != nil {
		return nil, 0, err
	}
	scores = make([]float64, len(two))
	for i := range scores {
		if e.pairs {
			scores[i] = 1 / (1 + math.Exp(-float64(vectors[i][0])))
		} else {
			scores[i] = cosine(e.shape(vectors[min(i, len(one)-1)]), e.shape(vectors[len(one)+i]))
		}
	}
	return scores, used, nil
}

// pairTokens closes each text. A cut drops the end of the second. Names of special tokens are plain text.
func (s *Server) pairTokens(ctx context.Context, one, two string, e *embeddingRequest) ([]int32, error) {
	most, err := s.cut(e)
	if err != nil {
		return nil, err
	}
	limit := s.encodeLimit()
	if most > 0 {
		limit = anyLength
	}
	var ids []int32
	if bos, add := s.engine.Tokenizer().BOS(); add {
		ids = append(ids, bos)
	}
	end, _ := s.engine.Tokenizer().End()
	for i, text := range []string{one, two} {
		part, err := s.plain(ctx, "input", text, false, limit)
		if err != nil {
			return nil, err
		}
		if room := most - len(ids) - 1; i == 1 && most > 0 && len(part) > room && room > 0 {
			part = part[:room]
		}
		ids = append(append(ids, part...), end)
	}
	return ids, nil
}

// cosine takes vectors of length 1.
func cosine(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return max(-1, min(1, sum))
}
