package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// ModelField is where a request names its model; empty: nowhere.
type ModelField string

const (
	ModelInJSON ModelField = "json" // in the field "model" of a JSON body
	ModelInForm ModelField = "form" // in the part "model" of a form body
)

// ClientPath describes one path of the client API, for the parts between a client and its model. No client path
// changes which models exist, how they are configured, or whether they are awake.
type ClientPath struct {
	// Method is the only method of the path; GET includes HEAD.
	Method string
	// Pattern is the path in metrics; "…" stands for any segments.
	Pattern string
	// Model is where a request names its model, and the front door looks it up.
	Model ModelField
	// Stream is the protocol of a streamed answer.
	Stream Stream
	// Prompts means that runtimes cache the prompts of these requests.
	Prompts bool
	// Describes means that the answer describes models and may name files of the host.
	Describes bool
	// Runtimes are the kinds that may serve the path; nil: unknown.
	Runtimes []string
	// Instead is, for a path of Ollama's API whose body names a model, the equivalent path for other runtimes;
	// otherwise empty.
	Instead string
}

// PathRealtime is OpenAI's Realtime API: a WebSocket whose query names the model.
const PathRealtime = "/v1/realtime"

// clientPaths maps exact paths to their description.
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
	// OpenAI's API, Anthropic's, and extensions of model servers.
	add(ClientPath{Method: get, Describes: true}, "/v1/models")
	add(ClientPath{Method: get}, "/version")
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamCompletion, Prompts: true}, "/v1/chat/completions", "/v1/completions")
	add(ClientPath{Method: post, Model: ModelInJSON, Prompts: true}, "/v1/embeddings")
	speakers := []string{vllm, sglang, llamacpp, ollama}
	translated := append([]string{engine}, speakers...) // translated for the engine: functions/translate
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamResponses, Prompts: true, Runtimes: translated}, "/v1/responses")
	add(ClientPath{Method: post, Model: ModelInJSON, Stream: StreamMessages, Prompts: true, Runtimes: translated}, "/v1/messages")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: translated}, "/v1/messages/count_tokens")
	add(ClientPath{Method: post, Model: ModelInForm, Runtimes: speakers}, "/v1/audio/transcriptions", "/v1/audio/translations")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{vllm, sglang}}, "/v1/audio/speech")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{vllm, sglang, ollama}}, "/v1/images/generations")
	add(ClientPath{Method: post, Model: ModelInForm, Runtimes: []string{vllm, sglang, ollama}}, "/v1/images/edits")
	add(ClientPath{Method: post, Model: ModelInJSON, Prompts: true, Runtimes: []string{engine, vllm, sglang, llamacpp}}, "/v1/rerank", "/rerank")
	add(ClientPath{Method: post, Model: ModelInJSON, Runtimes: []string{engine, vllm, sglang, llamacpp}}, "/tokenize", "/detokenize")
	add(ClientPath{Method: get, Runtimes: []string{engine, vllm}}, "/tokenizer_info")
	add(ClientPath{Method: get, Runtimes: []string{vllm}}, PathRealtime)
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
	likeOllama := []string{engine, RuntimeRayServe, ollama} // translated for the first two
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

// openPaths are the client paths with variable segments between a prefix and a suffix.
var openPaths = []struct {
	prefix, suffix string
	segments       int // the largest number of them
	ClientPath
}{
	{"/v1/models/", "", 8, ClientPath{Method: http.MethodGet, Pattern: "/v1/models/…", Describes: true}},
	{"/v1/audio/", "", 8, ClientPath{Method: http.MethodPost, Pattern: "/v1/audio/…"}},
	{"/v1/responses/", "", 1, ClientPath{Method: http.MethodGet, Pattern: "/v1/responses/…", Stream: StreamResponses}},
	{"/v1/responses/", "/cancel", 1, ClientPath{Method: http.MethodPost, Pattern: "/v1/responses/…/cancel"}},
}

// ClientPaths returns all client paths, in no order.
func ClientPaths() []ClientPath {
	all := slices.Collect(maps.Values(clientPaths))
	for _, o := range openPaths {
		all = append(all, o.ClientPath)
	}
	return all
}

// FindPath finds the client path of a request; path is decoded. An empty method stands for any, and then paths with
// variable segments are not found. It does not find a path that a server could interpret
// as another one.
func FindPath(method, path string) (ClientPath, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if p, found := clientPaths[path]; found && (p.Method == method || method == "") {
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

// harmless reports whether no server would resolve rest to a path elsewhere.
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
