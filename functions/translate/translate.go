// Package translate serves Anthropic's messages, OpenAI's responses and Ollama's own API where a runtime has chat
// completions only: /v1/messages, /v1/messages/count_tokens, /v1/responses, /api/chat and /api/generate. What can't be
// kept is refused, with the name of the field; docs/functions.md has the table.
//
// The life of one request:
//
//  1. The body is read, and becomes one of /v1/chat/completions, /v1/completions or /v1/embeddings. Fields that are not those APIs' go
//     along as they are: the runtime may know them.
//  2. The next handler serves that, as it serves any.
//  3. An answer in JSON is translated as a whole. A stream is translated event by event, each as soon as it is whole.
//     A failure gets the API's shape and its names of fields, and keeps its status.
//  4. A stream that breaks off, or ends with an error, is never a clean one: it gets the event "error", or a line with an
//     error, and not the one that ends an answer. An answer that is not what was asked for is a 502.
//
// A [Handler] is safe for concurrent use.
package translate

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Handler translates requests for the next handler, and gives it all others as they are.
type Handler struct {
	// Next serves /v1/chat/completions and /v1/embeddings, and where it is the engine's /api/show.
	Next http.Handler
	// Door reads bodies.
	Door *inbound.Door
	// Client is who pays for a body.
	Client func(*http.Request) string
	// Names are those of the model, of which some may end with the tag that Ollama's clients add to names; nil: none do.
	Names []api.ModelName
	// Reports says that Next tells the usage of a stream with each chunk, where it is asked to.
	Reports bool
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	translate := paths[r.URL.Path]
	if r.Method != http.MethodPost || translate == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	body, err := h.Door.Read(w, r, h.Client(r))
	if err != nil {
		api.WriteErrorTo(w, r, api.AsError(err))
		return
	}
	asked, to, err := translate(h, body.Bytes())
	body.Release()
	if err != nil {
		api.WriteErrorTo(w, r, api.AsError(err))
		return
	}
	if _, streams := jsonfield.Find(asked, "stream_options"); streams && h.Reports {
		asked = jsonfield.Set(asked, "stream_options", []byte(`{"include_usage":true,"continuous_usage_stats":true}`))
	}
	out := &writer{w: w, r: r, to: to, told: newTeller(r.Header, asked, to)}
	h.Next.ServeHTTP(out, to.of.request(r, asked))
	out.finish()
}

// paths are those that are translated: each makes the body of what the runtime is asked, and says what its answer becomes.
var paths = map[string]func(h *Handler, body []byte) ([]byte, shape, error){
	"/v1/messages": func(_ *Handler, body []byte) ([]byte, shape, error) {
		asked, err := fromMessages(body, false)
		silent := omits(body)
		return asked, shape{names: messagesNames, ping: []byte(pingMessage), answer: whole(func(c *completion) any { return c.message(silent) }), events: func(out *bytes.Buffer) events { return &messageEvents{text: out, silent: silent} }}, err
	},
	countPath: func(_ *Handler, body []byte) ([]byte, shape, error) {
		asked, err := fromMessages(body, true)
		return asked, shape{names: messagesNames, answer: whole(func(c *completion) any { return map[string]int{"input_tokens": c.Usage.Prompt} })}, err
	},
	"/v1/responses":   func(_ *Handler, body []byte) ([]byte, shape, error) { return fromResponses(body) },
	"/api/chat":       fromChat,
	"/api/generate":   fromGenerate,
	"/api/embed":      fromEmbed,
	"/api/embeddings": fromEmbeddings,
	"/api/show":       fromShow,
}

// target is what the runtime is asked for; the zero value is a chat completion.
type target struct {
	path   string // empty: see above
	method string // empty: POST
}

// countPath is where clients ask how many tokens a prompt has.
const countPath = "/v1/messages/count_tokens"

// The paths of what runtimes are asked for.
const (
	pathChat    = "/v1/chat/completions"
	pathText    = "/v1/completions"
	pathVectors = "/v1/embeddings"
	pathShow    = "/api/show" // of the engine
)

// request is a request for that in the place of r.
func (t target) request(r *http.Request, body []byte) *http.Request {
	c := r.Clone(r.Context())
	c.URL.Path, c.URL.RawPath = cmp.Or(t.path, pathChat), ""
	for _, name := range []string{"Accept-Encoding", "Anthropic-Version", "Anthropic-Beta", "Transfer-Encoding"} {
		c.Header.Del(name)
	}
	c.Header.Set("Content-Type", "application/json")
	if t.method != "" {
		c.Method, body = t.method, nil
		c.Header.Del("Content-Type")
	}
	c.RequestURI = c.URL.RequestURI()
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return c
}

// names is what the runtime is to answer with.
func (t target) names() string {
	switch t.path {
	case pathVectors:
		return "list of embeddings for the input"
	case pathShow:
		return "description of a model"
	case pathText:
		return "completion of a text"
	}
	return "chat completion"
}
