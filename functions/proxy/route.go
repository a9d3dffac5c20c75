package proxy

import (
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/internal/stream"
)

// route is one client path.
type route struct {
	pattern string // for metrics; ends with "/…" where deeper paths belong to it
	style   stream.Style
	// describes says that the answer tells of models, whose places on the host stay the host's.
	describes bool
}

// routes are the client paths by method and path. None of them changes which
// models there are, what they are, or whether they are awake.
var routes = func() map[string]route {
	m := map[string]route{}
	add := func(method string, style stream.Style, paths ...string) {
		for _, p := range paths {
			m[method+" "+p] = route{pattern: p, style: style}
		}
	}
	const get, post = http.MethodGet, http.MethodPost
	// OpenAI's API and what model servers add to it.
	add(get, stream.Plain, "/v1/models", "/version")
	add(post, stream.Completion, "/v1/chat/completions", "/v1/completions")
	add(post, stream.Responses, "/v1/responses")
	add(post, stream.Messages, "/v1/messages")
	add(post, stream.Plain, "/v1/embeddings", "/v1/messages/count_tokens", "/v1/chat/completions/batch",
		"/v1/chat/completions/render", "/v1/completions/render", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score",
		"/v2/embed", "/tokenize", "/detokenize", "/pooling", "/classify", "/inference/v1/generate")
	// SGLang's own.
	add(post, stream.Completion, "/generate")
	add(post, stream.Plain, "/encode")
	add(get, stream.Plain, "/get_model_info")
	// llama.cpp's own. Its /props names a path of the host and stays closed.
	add(post, stream.Completion, "/completion", "/infill")
	add(post, stream.Plain, "/apply-template", "/embedding", "/reranking")
	// Ollama's own.
	add(post, stream.Lines, "/api/chat", "/api/generate")
	add(post, stream.Plain, "/api/embed", "/api/embeddings", "/api/show")
	add(get, stream.Plain, "/api/tags", "/api/version", "/api/ps")
	for _, p := range []string{"GET /v1/models", "GET /get_model_info", "GET /api/tags", "GET /api/ps", "POST /api/show"} {
		r := m[p]
		r.describes = true
		m[p] = r
	}
	return m
}()

// deeper are the client paths with something between a prefix and a suffix.
var deeper = []struct {
	method, prefix, suffix string
	segments               int // at most
	route                  route
}{
	{http.MethodGet, "/v1/models/", "", 8, route{pattern: "/v1/models/…", describes: true}},
	{http.MethodPost, "/v1/audio/", "", 8, route{pattern: "/v1/audio/…"}},
	{http.MethodGet, "/v1/responses/", "", 1, route{pattern: "/v1/responses/…", style: stream.Responses}},
	{http.MethodPost, "/v1/responses/", "/cancel", 1, route{pattern: "/v1/responses/…/cancel"}},
}

// lookUp finds the route of a client path; path is decoded. A path that a runtime
// could read as another one has no route.
func lookUp(method, path string) (route, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if r, found := routes[method+" "+path]; found {
		return r, true
	}
	for _, d := range deeper {
		rest, found := strings.CutPrefix(path, d.prefix)
		if !found || d.method != method {
			continue
		}
		if rest, found = strings.CutSuffix(rest, d.suffix); found && harmless(rest, d.segments) {
			return d.route, true
		}
	}
	return route{}, false
}

// harmless refuses what a server might resolve to a path elsewhere.
func harmless(rest string, segments int) bool {
	if strings.ContainsAny(rest, "%\\?#\x00\r\n") || strings.Count(rest, "/") >= segments {
		return false
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}
