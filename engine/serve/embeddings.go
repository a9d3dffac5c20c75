package serve

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// maxInputs is OpenAI's limit.
const maxInputs = 2048

var poolings = map[string]engine.Pooling{
	"mean": engine.PoolMean, "last": engine.PoolLast, "cls": engine.PoolFirst, "first": engine.PoolFirst,
}

type embeddingRequest struct {
	vectorOptions
	Input      prompts `json:"input"`
	Encoding   *string `json:"encoding_format"`
	Dimensions *int    `json:"dimensions"`
	Normalize  *bool   `json:"normalize"`

	pairs bool // pairs of texts for a model that ranks
}

type vectorOptions struct {
	Model    string  `json:"model"`
	Pooling  *string `json:"pooling"`
	Truncate *int    `json:"truncate_prompt_tokens"`
	Side     *string `json:"truncation_side"`
	Priority *int    `json:"priority"`
	Salt     *string `json:"cache_salt"`
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) error {
	var e embeddingRequest
	paid, model, adapter, err := s.readFor(w, r, &e, &e.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	vectors, used, err := s.vectors(w, r, paid, &e, adapter, func(ctx context.Context, i int) ([]int32, error) { return s.inputTokens(ctx, e.Input[i], &e) })
	if err != nil {
		return err
	}
	out := s.pieces(w)
	defer out.end()
	out.buf = append(appendString(append(out.buf, `{"object":"list","model":`...), model), `,"data":[`...)
	for i, v := range vectors {
		out.buf = comma(out.buf)
		out.buf = append(appendInt(append(out.buf, `{"object":"embedding","index":`...), i), `,"embedding":`...)
		out.buf = append(appendVector(out.buf, e.shape(v), or(e.Encoding, "") == "base64"), '}')
		if !out.more() {
			return nil
		}
	}
	out.buf = appendInt(append(out.buf, `],"usage":{"prompt_tokens":`...), used)
	out.buf = append(appendInt(append(out.buf, `,"total_tokens":`...), used), "}}\n"...)
	return nil
}

func (s *Server) vectors(w http.ResponseWriter, r *http.Request, paid *inbound.Body, e *embeddingRequest, adapter string, encode func(ctx context.Context, i int) ([]int32, error)) (vectors [][]float32, used int, err error) {
	pooling, err := s.checkEmbedding(e)
	if err != nil {
		return nil, 0, err
	}
	requests := make([]engine.Request, len(e.Input))
	for i := range e.Input {
		ids, err := encode(r.Context(), i)
		if err != nil {
			return nil, 0, err
		}
		if err := payTokens(r.Context(), paid, ids); err != nil {
			return nil, 0, err
		}
		requests[i] = engine.Request{
			Prompt: ids, Embed: pooling, Adapter: adapter, Tenant: tenant(r), Priority: or(e.Priority, 0), Salt: or(e.Salt, ""),
		}
		used += len(ids)
	}
	if err := paid.Take(r.Context(), int64(len(requests)*s.engine.Model().Dim*4)); err != nil {
		return nil, 0, err
	}
	vectors, err = s.embed(w, r, requests)
	return vectors, used, renamed(err, "prompt", "input")
}

func (s *Server) checkEmbedding(e *embeddingRequest) (engine.Pooling, error) {
	dim := s.engine.Model().Dim
	name := or(e.Pooling, s.cfg.Pooling)
	if name == "" {
		name = "last"
		if s.engine.Model().Encoder {
			name = "mean"
		}
	}
	pooling, ok := poolings[name]
	if e.pairs {
		pooling, ok = engine.PoolRank, true
	}
	switch {
	case len(e.Input) == 0 || len(e.Input) > maxInputs:
		return "", badRequest("input", "%d inputs: want 1 to %d", len(e.Input), maxInputs)
	case e.Encoding != nil && *e.Encoding != "float" && *e.Encoding != "base64":
		return "", badRequest("encoding_format", "encoding_format is %s: want \"float\" or \"base64\"", quote(*e.Encoding))
	case e.Dimensions != nil && (*e.Dimensions < 1 || *e.Dimensions > dim):
		return "", badRequest("dimensions", "dimensions is %d: want 1 to %d, which is what the model has", *e.Dimensions, dim)
	case e.pairs && e.Pooling != nil:
		return "", badRequest("pooling", "pooling is %s: leave it out, the model itself makes a score", quote(name))
	case !ok:
		return "", badRequest("pooling", "pooling is %s: want \"mean\", \"last\" or \"cls\"", quote(name))
	case e.Side != nil && *e.Side != sideLeft && *e.Side != sideRight:
		return "", badRequest("truncation_side", "truncation_side is %s: want \"left\", which keeps the last tokens, or \"right\", which keeps the first", quote(*e.Side))
	}
	return pooling, checkTurn(e.Priority, e.Salt)
}

const (
	sideLeft  = "left"
	sideRight = "right"
)

// cut returns how many tokens of an input are kept: truncate_prompt_tokens, where -1 means the context; 0: all.
func (s *Server) cut(e *embeddingRequest) (int, error) {
	if e.Truncate == nil {
		return 0, nil
	}
	n := *e.Truncate
	if n == -1 {
		n = s.engine.Context()
	}
	if n < 1 || n > s.engine.Context() {
		return 0, badRequest("truncate_prompt_tokens", "truncate_prompt_tokens is %d: want 1 to %d, or -1 for what the model's context holds", n, s.engine.Context())
	}
	return n, nil
}

// inputTokens cuts to the last tokens, as vLLM does, or for encoders to the first ones with the closing token: their
// first token is special.
func (s *Server) inputTokens(ctx context.Context, in textOrTokens, e *embeddingRequest) ([]int32, error) {
	ids := in.tokens
	if ids == nil {
		var err error
		if ids, err = s.whole(ctx, "input", in.text, e.Truncate != nil); err != nil {
			return nil, err
		}
	}
	n, err := s.cut(e)
	if err != nil || n == 0 || len(ids) <= n {
		return ids, err
	}
	side := sideLeft
	if s.engine.Model().Encoder {
		side = sideRight
	}
	if or(e.Side, side) == sideLeft {
		return slices.Clone(ids[len(ids)-n:]), nil // releases the others' memory
	}
	kept := slices.Clone(ids[:n])
	if end, closes := s.engine.Tokenizer().End(); closes && in.tokens == nil {
		kept[n-1] = end
	}
	return kept, nil
}

func (s *Server) embed(w http.ResponseWriter, r *http.Request, requests []engine.Request) ([][]float32, error) {
	stream, err := s.engine.Add(r.Context(), requests...)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	m := s.metrics.meter(requests)
	defer m.end()
	vectors, done := make([][]float32, len(requests)), 0
	for {
		ev, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return vectors, nil
		}
		if err != nil {
			usage{prompt: done}.tell(w)
			return nil, err
		}
		m.vector()
		done += len(requests[ev.Index].Prompt)
		for _, x := range ev.Embedding {
			if x != x || math.IsInf(float64(x), 0) {
				return nil, sample.ErrDamaged
			}
		}
		vectors[ev.Index] = ev.Embedding
	}
}

func (e *embeddingRequest) shape(v []float32) []float32 {
	v = append([]float32(nil), v[:min(or(e.Dimensions, len(v)), len(v))]...)
	if !or(e.Normalize, true) {
		return v
	}
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return v
	}
	scale := 1 / math.Sqrt(sum)
	for i := range v {
		v[i] = float32(float64(v[i]) * scale)
	}
	return v
}

// appendVector's encoding is base64 of little-endian float32.
func appendVector(dst []byte, v []float32, encoded bool) []byte {
	if encoded {
		raw := make([]byte, 0, 4*len(v))
		for _, x := range v {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), '"')
	}
	dst = append(dst, '[')
	for _, x := range v {
		dst = comma(dst)
		dst = strconv.AppendFloat(dst, float64(x), 'g', -1, 32)
	}
	return append(dst, ']')
}
