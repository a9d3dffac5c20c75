// Package translate serves Anthropic's messages, OpenAI's responses and Ollama's own API for a runtime that has chat completions only.
// A field that can't be translated is refused by its name; docs/functions.md has the table.
//
// The life of one request:
//
//  1. The body becomes one of /v1/chat/completions, /v1/completions or /v1/embeddings. Unknown fields are passed on.
//  2. The next handler serves it.
//  3. An answer in JSON is translated as a whole, a stream event by event. A failure keeps its status, in the client's shape and names.
//  4. A stream that breaks off ends with an error, never with the event that completes an answer. An answer of an unexpected kind is a
//     502.
package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Handler translates requests for Next, and passes all others on. It is safe for many goroutines.
type Handler struct {
	// Next serves chat and text completions and embeddings, and in front of the engine /api/show.
	Next http.Handler
	Door *inbound.Door
	// Client returns who is charged for the memory of a body.
	Client func(*http.Request) string
	// Names are the model's. Ollama's clients add ":latest", which is removed unless a name here has it.
	Names []api.ModelName
	// Reports: Next can send the usage of a stream with each chunk.
	Reports bool
}

// Paths of the runtimes' requests; pathShow is the engine's.
const (
	pathChat    = "/v1/chat/completions"
	pathText    = "/v1/completions"
	pathVectors = "/v1/embeddings"
	pathModels  = "/v1/models"
	pathShow    = "/api/show"
)

const pathCount = "/v1/messages/count_tokens"

var paths = map[string]func(h *Handler, in *request) shape{
	"/v1/messages":    askMessages,
	pathCount:         askCount,
	"/v1/responses":   askResponses,
	"/api/chat":       askChat,
	"/api/generate":   askGenerate,
	"/api/embed":      askEmbed,
	"/api/embeddings": askEmbeddings,
	pathShow:          askShow,
}

type shape struct {
	path string // "": pathChat; of pathModels a GET
	// answer translates a whole body; false: of an unexpected kind.
	answer func(body []byte) (any, bool)
	// names maps a chat completion's fields to the client's, for errors.
	names map[string]string
	// events begins a stream; nil: there is none.
	events func(*output) events
	style  api.Stream
	// ping, if not empty, replaces comments that keep the connection open.
	ping string
	// scored: the end of a stream repeats all scores, if they are requested.
	scored bool
}

func (s shape) lines() bool { return s.style == api.StreamLines }

func whole(answer func(*completion) any) func(body []byte) (any, bool) {
	return func(body []byte) (any, bool) {
		var c completion
		if err := json.Unmarshal(body, &c); err != nil || len(c.Choices) == 0 {
			return nil, false
		}
		return answer(&c), true
	}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || paths[r.URL.Path] == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	body, err := h.Door.Read(w, r, h.Client(r))
	if err != nil {
		api.WriteErrorTo(w, r, api.AsError(err))
		return
	}
	asked, to, err := h.translate(r.URL.Path, body.Bytes())
	body.Release()
	if err != nil {
		api.WriteErrorTo(w, r, api.AsError(err))
		return
	}
	out := &writer{w: w, r: r, to: to, state: newStateWriter(r.Header, asked, to)}
	h.Next.ServeHTTP(out, to.request(r, asked))
	out.finish()
}

func (h *Handler) translate(path string, body []byte) ([]byte, shape, error) {
	in := &request{}
	if err := json.Unmarshal(body, &in.object); err != nil || in.object == nil {
		return nil, shape{}, api.BadRequest("", "the body is not a JSON object")
	}
	to := paths[path](h, in)
	if in.err != nil {
		return nil, shape{}, in.err
	}
	if h.Reports && in.has("stream_options") {
		in.put("stream_options", map[string]bool{"include_usage": true, "continuous_usage_stats": true})
	}
	asked, err := json.Marshal(in.object)
	return asked, to, err
}

func (s shape) request(r *http.Request, body []byte) *http.Request {
	c := r.Clone(r.Context())
	c.URL.Path, c.URL.RawPath = cmp.Or(s.path, pathChat), ""
	for _, name := range []string{"Accept-Encoding", "Anthropic-Version", "Anthropic-Beta", "Transfer-Encoding", "Content-Type"} {
		c.Header.Del(name)
	}
	if s.path == pathModels {
		c.Method, body = http.MethodGet, nil
	} else {
		c.Header.Set("Content-Type", "application/json")
	}
	c.RequestURI = c.URL.RequestURI()
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return c
}
