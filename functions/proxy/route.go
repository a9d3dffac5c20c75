package proxy

import "strings"

// style is the protocol of a stream of events.
type style int

const (
	plain      style = iota // any stream that ends properly is whole
	completion              // ends with data: [DONE]
	responses               // ends with event: response.completed, .failed or .incomplete
	messages                // ends with event: message_stop
)

// route is one client path.
type route struct {
	pattern string // for metrics; ends with "/…" where deeper paths belong to it
	style   style
}

// routes are the client paths by method and path.
var routes = map[string]route{
	"GET /v1/models":            {"/v1/models", plain},
	"POST /v1/chat/completions": {"/v1/chat/completions", completion},
	"POST /v1/completions":      {"/v1/completions", completion},
	"POST /v1/embeddings":       {"/v1/embeddings", plain},
	"POST /v1/responses":        {"/v1/responses", responses},
	"POST /v1/messages":         {"/v1/messages", messages},
	"POST /v1/rerank":           {"/v1/rerank", plain},
	"POST /rerank":              {"/rerank", plain},
	"POST /v1/score":            {"/v1/score", plain},
	"POST /score":               {"/score", plain},
	"POST /tokenize":            {"/tokenize", plain},
	"POST /detokenize":          {"/detokenize", plain},
	"POST /pooling":             {"/pooling", plain},
	"POST /classify":            {"/classify", plain},
	"GET /version":              {"/version", plain},
}

// deeper are the client paths with something below them.
var deeper = []struct {
	method, prefix string
	route          route
}{
	{"GET", "/v1/models/", route{"/v1/models/…", plain}},
	{"POST", "/v1/audio/", route{"/v1/audio/…", plain}},
}

// Route says whether a path is a client path, and its pattern. path is decoded.
// A path that a runtime could read as another one has no route.
func Route(method, path string) (pattern string, found bool) {
	r, found := lookUp(method, path)
	return r.pattern, found
}

func lookUp(method, path string) (route, bool) {
	if r, found := routes[method+" "+path]; found {
		return r, true
	}
	for _, d := range deeper {
		if rest, found := strings.CutPrefix(path, d.prefix); found && d.method == method && harmless(rest) {
			return d.route, true
		}
	}
	return route{}, false
}

// harmless refuses what a server might resolve to a path elsewhere.
func harmless(rest string) bool {
	if strings.ContainsAny(rest, "%\\?#\x00\r\n") {
		return false
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}
