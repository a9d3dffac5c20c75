package vllmsim

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// dimensions is the length of an embedding unless a client wants another.
const dimensions = 128

// pooled computes prompts without generating, in the batch like everything else.
func (s *Server) pooled(r *http.Request, name string, prompts [][]words.Token, ill injected) (*ask, []*job, error) {
	a := &ask{name: name, n: 1, max: 0, logprobs: -1, prompts: prompts}
	jobs, err := s.jobs(a, ill)
	if err != nil {
		return nil, nil, err
	}
	cancel, err := s.submit(jobs)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	for p := range s.follow(r, jobs) {
		if p.err != nil {
			return nil, nil, p.err
		}
	}
	return a, jobs, r.Context().Err()
}

// embeddings answers /v1/embeddings.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Encoding   string          `json:"encoding_format"`
		Dimensions *int            `json:"dimensions"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	inputs, err := prompts(body.Input)
	n := dimensions
	if body.Dimensions != nil {
		n = *body.Dimensions
	}
	switch {
	case err != nil:
		err = bad("input", "input must be a string, a list of strings, or tokens")
	case n < 1 || n > 8192:
		err = bad("dimensions", "dimensions must be between 1 and 8192, got %d", n)
	case body.Encoding != "" && body.Encoding != "float" && body.Encoding != "base64":
		err = bad("encoding_format", "encoding_format must be float or base64, got %q", body.Encoding)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	a, jobs, err := s.pooled(r, body.Model, inputs, ill)
	if err != nil {
		s.fail(w, err)
		return
	}
	data := make([]any, 0, len(inputs))
	for i, p := range inputs {
		voice := s.cfg.Model + a.adapter
		if jobs[i].garbled {
			voice += "\x00garbage"
		}
		v := words.Vector(voice, words.Decode(p), n)
		var embedding any = v
		if body.Encoding == "base64" {
			embedding = floats32(v)
		}
		data = append(data, map[string]any{"index": i, "object": "embedding", "embedding": embedding})
	}
	write(w, http.StatusOK, map[string]any{"id": s.id(r, "embd-"), "object": "list", "created": time.Now().Unix(), "model": a.name, "data": data, "usage": s.engine.usage(a, jobs, 0)})
}

// floats32 is base64 of little-endian 32-bit numbers.
func floats32(v []float64) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(x)))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// list is a text or a list of them.
type list []string

func (l *list) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(l))
}

// similarity of two texts, 0 to 1.
func (s *Server) similarity(a, b string) float64 {
	dot := words.Dot(words.Vector(s.cfg.Model, a, dimensions), words.Vector(s.cfg.Model, b, dimensions))
	return math.Round(1e6*(1+dot)/2) / 1e6
}

// score answers /v1/score.
func (s *Server) score(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Model string `json:"model"`
		Text1 list   `json:"text_1"`
		Text2 list   `json:"text_2"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if len(body.Text1) == 0 || len(body.Text2) == 0 || len(body.Text1) != 1 && len(body.Text1) != len(body.Text2) {
		s.fail(w, bad("text_1", "text_1 must have one text or as many as text_2, and neither may be empty"))
		return
	}
	var pairs [][]words.Token
	data := make([]any, 0, len(body.Text2))
	for i, b := range body.Text2 {
		a := body.Text1[min(i, len(body.Text1)-1)]
		pairs = append(pairs, words.Encode(a+"\n"+b))
		data = append(data, map[string]any{"index": i, "object": "score", "score": s.similarity(a, b)})
	}
	a, jobs, err := s.pooled(r, body.Model, pairs, ill)
	if err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, map[string]any{"id": s.id(r, "score-"), "object": "list", "created": time.Now().Unix(), "model": a.name, "data": data, "usage": s.engine.usage(a, jobs, 0)})
}

// rerank answers /v1/rerank.
func (s *Server) rerank(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Model     string `json:"model"`
		Query     string `json:"query"`
		Documents list   `json:"documents"`
		TopN      int    `json:"top_n"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if len(body.Documents) == 0 || body.Query == "" || body.TopN < 0 {
		s.fail(w, bad("documents", "rerank needs a query, at least one document, and a top_n of at least 0"))
		return
	}
	var results []map[string]any
	score := map[Surface]string{SGLang: "score"}[s.cfg.Surface]
	if score == "" {
		score = "relevance_score"
	}
	var pairs [][]words.Token
	for i, d := range body.Documents {
		pairs = append(pairs, words.Encode(body.Query+"\n"+d))
		results = append(results, map[string]any{"index": i, score: s.similarity(body.Query, d)})
		switch s.cfg.Surface {
		case VLLM:
			results[i]["document"] = map[string]any{"text": d}
		case SGLang:
			results[i]["document"] = d
		}
	}
	a, jobs, err := s.pooled(r, body.Model, pairs, ill)
	if err != nil {
		s.fail(w, err)
		return
	}
	slices.SortStableFunc(results, func(x, y map[string]any) int { return cmp.Compare(y[score].(float64), x[score].(float64)) })
	if body.TopN > 0 && body.TopN < len(results) {
		results = results[:body.TopN]
	}
	if s.cfg.Surface == SGLang {
		write(w, http.StatusOK, results)
		return
	}
	write(w, http.StatusOK, map[string]any{"id": s.id(r, "rerank-"), "model": a.name, "results": results,
		"usage": map[string]any{"total_tokens": s.engine.usage(a, jobs, 0)["total_tokens"]}})
}

// tokenize answers /tokenize: no engine is needed.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    string    `json:"model"`
		Prompt   *string   `json:"prompt"`
		Messages []message `json:"messages"`
		Strings  bool      `json:"return_token_strs"`
	}
	err := read(r, &body)
	var tokens []words.Token
	switch {
	case err != nil:
	case body.Prompt != nil:
		tokens = words.Encode(*body.Prompt)
	default:
		tokens, err = conversation(body.Messages)
	}
	if err == nil {
		_, err = s.resolve(body.Model)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	answer := map[string]any{"count": len(tokens), "max_model_len": s.cfg.MaxModelLen, "tokens": tokens, "token_strs": nil}
	if body.Strings {
		texts := []string{}
		for _, t := range tokens {
			texts = append(texts, words.Piece(t))
		}
		answer["token_strs"] = texts
	}
	write(w, http.StatusOK, answer)
}

// detokenize answers /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model  string        `json:"model"`
		Tokens []words.Token `json:"tokens"`
	}
	err := read(r, &body)
	if err == nil {
		_, err = s.resolve(body.Model)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, map[string]any{"prompt": words.Decode(body.Tokens)})
}
