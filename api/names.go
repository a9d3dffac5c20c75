package api

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// DefaultNamespace is the namespace of a function that names none.
const DefaultNamespace = "default"

// DefaultModel is a further name of every model: clients of mlflow-extensions ask for it.
const DefaultModel = "default"

// FunctionName is "namespace/name".
type FunctionName string

// NewFunctionName joins a namespace (empty: [DefaultNamespace]) and a name.
func NewFunctionName(namespace, name string) FunctionName {
	return FunctionName(cmp.Or(namespace, DefaultNamespace) + "/" + name)
}

// Namespace returns the part before the slash; [DefaultNamespace] without one.
func (f FunctionName) Namespace() string {
	ns, _, found := strings.Cut(string(f), "/")
	if !found {
		return DefaultNamespace
	}
	return ns
}

// Name returns the part after the slash.
func (f FunctionName) Name() string {
	return string(f[strings.Index(string(f), "/")+1:])
}

// Short omits the default namespace.
func (f FunctionName) Short() string {
	if f.Namespace() == DefaultNamespace {
		return f.Name()
	}
	return string(f)
}

// Check returns why f is not valid, or nil: a namespace is a label of RFC 1123.
func (f FunctionName) Check() error {
	ns := f.Namespace()
	if ns == "" || len(ns) > 63 || strings.Trim(ns, letters+digits+"-") != "" || strings.Trim(ns, "-") != ns {
		return fmt.Errorf("namespace %q: want 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit", ns)
	}
	return CheckName(f.Name())
}

const letters, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"

// CheckName returns why a function's name is not valid, or nil: it is a label of RFC 1035, as a Service's.
func CheckName(name string) error {
	if len(name) > 63 || strings.IndexAny(name, letters) != 0 || strings.Trim(name, letters+digits+"-") != "" || strings.HasSuffix(name, "-") {
		return fmt.Errorf("name %q: want 1 to 63 of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit", name)
	}
	return nil
}

// It becomes a metric label.
const maxAdapterName = 253

// CheckAdapterName returns why a LoRA adapter's name is not valid, or nil.
func CheckAdapterName(name ModelName) error {
	switch {
	case name == "" || len(name) > maxAdapterName:
		return fmt.Errorf("the adapter's name has %d characters: want 1 to %d", len(name), maxAdapterName)
	case strings.Trim(string(name), letters+strings.ToUpper(letters)+digits+"-_.:/@") != "":
		return fmt.Errorf("the adapter's name %q: want letters, digits and - _ . : / @ only", name)
	case name == "info":
		return errors.New("an adapter can't be named info: GET /adapters/info lists them; choose another name")
	}
	return nil
}

// ModelName is a request's field "model".
type ModelName string

// InstanceID is unique in a cluster: "NAME-0001" or a pod's name.
type InstanceID string

// DeviceID is a GPU's UUID, or [HostMemory].
type DeviceID string

// HostMemory stands for the host's own memory.
const HostMemory DeviceID = "host"

// Tokens counts tokens.
type Tokens int64

// Bytes counts bytes.
type Bytes int64

const (
	KiB Bytes = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// MaxDeviceMemory is more than any GPU has: a larger report is invalid.
const MaxDeviceMemory = 16 * TiB

// String formats b in the largest binary unit not above it.
func (b Bytes) String() string {
	for _, u := range []struct {
		unit Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.unit || b <= -u.unit {
			s := strconv.FormatFloat(float64(b)/float64(u.unit), 'f', 1, 64)
			return strings.TrimSuffix(s, ".0") + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

var quantitySuffixes = []struct {
	suffix string
	factor float64
}{
	{"Ki", float64(KiB)}, {"Mi", float64(MiB)}, {"Gi", float64(GiB)}, {"Ti", float64(TiB)},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1},
}

// ParseBytes parses a Kubernetes quantity such as "512Mi", "1.5G" or "1048576".
func ParseBytes(s string) (Bytes, error) {
	for _, q := range quantitySuffixes {
		digits, found := strings.CutSuffix(strings.TrimSpace(s), q.suffix)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil || v < 0 || math.IsNaN(v) || v*q.factor > math.MaxInt64/2 {
			break
		}
		return Bytes(v * q.factor), nil
	}
	return 0, fmt.Errorf("memory %q: want a quantity such as 512Mi or 2Gi", s)
}

// ModelField is where a request names its model.
type ModelField string

const (
	ModelInJSON ModelField = "json" // in the field "model" of a JSON body
	ModelInForm ModelField = "form" // in the part "model" of a form body
)

// ClientPath describes one path of the client API. None changes which models exist or are awake.
type ClientPath struct {
	// GET includes HEAD.
	Method string
	// In metrics; "…" stands for any segments.
	Pattern string
	Model   ModelField
	// Of a streamed answer.
	Stream Stream
	// Runtimes cache the prompts.
	Prompts bool
	// The answer describes models and may name files of the host.
	Describes bool
	// nil: unknown
	Runtimes []string
	// Instead is the equivalent path for other runtimes than Ollama.
	Instead string
}

// PathRealtime is OpenAI's WebSocket, whose query names the model.
const PathRealtime = "/v1/realtime"

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
	translated := append([]string{engine}, speakers...) // functions/translate
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

// With variable segments between prefix and suffix.
var openPaths = []struct {
	prefix, suffix string
	segments       int // at most
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

// FindPath finds the client path of a request; path is decoded. Without a method, paths with variable segments are
// not found. A path that servers could interpret as another is not found.
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

// harmless: no server resolves rest elsewhere.
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
