package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// ClientPath is one path of clients': what is served there, and what those between a client and
// its model must know of it. None of them changes which models there are, what they are, or whether
// they are awake.
type ClientPath struct {
	// Method is the one that it has; GET includes HEAD.
	Method string
	// Pattern is how metrics name it; "…" stands for any segments.
	Pattern string
	// Model is where a request says which model it is for, for the front door to find its function.
	Model ModelField
	// Stream is the protocol of a stream that answers.
	Stream Stream
	// Prompts says that runtimes keep prompts of such requests, to use what they computed again.
	Prompts bool
	// Describes says that the answer describes models, and may name files of the host.
	Describes bool
	// Runtimes are the kinds that may have it; nil: that is not known.
	Runtimes []string
	// Instead is, for a path of Ollama's own API, what has its place with other runtimes; empty: it is none whose body
	// names a model.
	Instead string
}

// PathTokenizerInfo tells the special tokens and the chat template of a model. lm-eval asks a server for it that has one model.
const PathTokenizerInfo = "/tokenizer_info"

// ModelField is where a request names its model.
type ModelField int

// Places of the field.
const (
	ModelNowhere ModelField = iota
	ModelInJSON             // in the field "model" of the body, which is JSON
	ModelInForm             // in the part "model" of the body, which is a form
)

// clientPaths is the table of the client paths, by name.
var clientPaths = func() map[string]ClientPath {
	m := map[string]ClientPath{}
	const get, post = http.MethodGet, http.MethodPost
	add := func(p ClientPath, names ...string) {
		for _, name := range names {
			p.Pattern = name
			m[name] = p
		}
	}
	const engine, vllm, sglang, llamacpp, ollama = RuntimeEngine, RuntimeVLLM, RuntimeSGLang, RuntimeLlamaCpp, RuntimeOllama
	// OpenAI's API, Anthropic's, and what model servers add to them.
	add(ClientPath{Method: get, Describes: true}, "/v1/models")
	add(ClientPath{Method: get}, "/version")
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamCompletion, Prompts: true}, "/v1/chat/completions", "/v1/completions")
	add(ClientPath{Method: post, Model: ModelInJSON, Prompts: true}, "/v1/embeddings")
	speakers := []string{vllm, sglang, llamacpp, ollama}
	translated := append([]string{engine}, speakers...) // for the engine it is translated: functions/translate
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamResponses, Prompts: true, Runtimes: translated}, "/v1/responses")
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamMessages, Prompts: true, Runtimes: translated}, "/v1/messages")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: translated}, "/v1/messages/count_tokens")
	add(ClientPath{Method: post, Model: ModelInForm, Runtimes: speakers}, "/v1/audio/transcriptions", "/v1/audio/translations")
	add(ClientPath{Method: post, Model: ModelInJSON, Prompts: true, Runtimes: []string{engine, vllm, sglang, llamacpp}}, "/v1/rerank", "/rerank")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{engine, vllm, sglang, llamacpp}}, "/tokenize", "/detokenize")
	add(ClientPath{Method: get, Runtimes: []string{engine, vllm}}, PathTokenizerInfo)
	add(ClientPath{Method: post, Model: ModelInJSON, Prompts: true, Runtimes: []string{engine, vllm, sglang}}, "/v2/rerank", "/v1/score", "/score")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{vllm, sglang}}, "/classify", "/pooling")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{vllm}},
		"/v2/embed", "/inference/v1/generate", "/v1/chat/completions/batch", "/v1/chat/completions/render", "/v1/completions/render")
	// SGLang's own.
	add(ClientPath{Method: post, Stream: StreamCompletion, Prompts: true, Runtimes: []string{sglang}}, "/generate")
	add(ClientPath{Method: post, Runtimes: []string{sglang}}, "/encode")
	add(ClientPath{Method: get, Describes: true, Runtimes: []string{sglang}}, "/get_model_info")
	// llama.cpp's own. Its /props names a path of the host and stays closed.
	add(ClientPath{Method: post, Stream: StreamCompletion, Prompts: true, Runtimes: []string{llamacpp}}, "/completion")
	add(ClientPath{Method: post, Stream: StreamCompletion, Runtimes: []string{llamacpp}}, "/infill")
	add(ClientPath{Method: post, Runtimes: []string{llamacpp}}, "/apply-template", "/embedding", "/reranking")
	// Ollama's own.
	likeOllama := []string{engine, RuntimeRayServe, ollama} // for the first two it is translated
	own := ClientPath{Method: post, Model: ModelInJSON, Runtimes: likeOllama}
	own.Instead = "POST /v1/embeddings"
	add(own, "/api/embed", "/api/embeddings")
	own.Instead, own.Describes, own.Runtimes = "GET /v1/models/NAME", true, []string{engine, ollama}
	add(own, "/api/show")
	own.Instead, own.Describes, own.Stream, own.Runtimes = "POST /v1/chat/completions", false, StreamLines, likeOllama
	add(own, "/api/chat")
	own.Instead = "POST /v1/completions"
	add(own, "/api/generate")
	add(ClientPath{Method: get, Describes: true, Runtimes: []string{ollama}}, "/api/tags", "/api/ps")
	add(ClientPath{Method: get, Runtimes: []string{ollama}}, "/api/version")
	return m
}()

// openPaths are the client paths with something between a prefix and a suffix.
var openPaths = []struct {
	prefix, suffix string
	segments       int // between them, at most
	ClientPath
}{
	{"/v1/models/", "", 8, ClientPath{Method: http.MethodGet, Pattern: "/v1/models/…", Describes: true}},
	{"/v1/audio/", "", 8, ClientPath{Method: http.MethodPost, Pattern: "/v1/audio/…"}},
	{"/v1/responses/", "", 1, ClientPath{Method: http.MethodGet, Pattern: "/v1/responses/…", Stream: StreamResponses}},
	{"/v1/responses/", "/cancel", 1, ClientPath{Method: http.MethodPost, Pattern: "/v1/responses/…/cancel"}},
}

// ClientPaths are all client paths, by pattern and method: for lists of what there is.
func ClientPaths() []ClientPath {
	all := slices.Collect(maps.Values(clientPaths))
	for _, o := range openPaths {
		all = append(all, o.ClientPath)
	}
	slices.SortFunc(all, func(a, b ClientPath) int {
		return cmp.Or(strings.Compare(a.Pattern, b.Pattern), strings.Compare(a.Method, b.Method))
	})
	return all
}

// NamedPath finds the client path with a name that is whole in the table, whatever the method; path is decoded.
func NamedPath(path string) (ClientPath, bool) {
	p, found := clientPaths[path]
	return p, found
}

// FindPath finds the client path of a request; path is decoded. A path that a server could read as another
// one is none.
func FindPath(method, path string) (ClientPath, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if p, found := clientPaths[path]; found && p.Method == method {
		return p, true
	}
	for _, o := range openPaths {
		rest, found := strings.CutPrefix(path, o.prefix)
		if !found || o.Method != method {
			continue
		}
		if rest, found = strings.CutSuffix(rest, o.suffix); found && harmless(rest, o.segments) {
			return o.ClientPath, true
		}
	}
	return ClientPath{}, false
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
