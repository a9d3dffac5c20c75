package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/server"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/functions"
)

// meanings say what each path is, beside those of clients whose body names a model. One that no router has, and one of a router that has no
// line here, fail the test.
var meanings = map[string]string{
	"GET /":                                  "the page for a browser, a line of text for others",
	"GET /healthz":                           "the process works; needs no key",
	"GET /health":                            "the process works, where model servers say so; needs no key",
	"GET /readyz":                            "new requests are taken; needs no key",
	"GET /metrics":                           "[metrics](metrics.md), for operators; in a cluster at a port of its own",
	"GET /v1/models":                         "the functions and their adapters, those that the key may use",
	"GET /v1/models/{model:.+}":              "one of them",
	"GET /api/tags":                          "the same as Ollama lists them, where a function has Ollama's API; sizes and details once an instance was awake",
	"GET /api/ps":                            "those that are awake, as Ollama lists them",
	"GET /api/version":                       "the version of Ollama's API",
	"GET /ping":                              "new requests are taken, where MLflow's server says so; needs no key. `/ping/` leads here, as at MLflow's server, and its other paths likewise",
	"GET /version":                           "the version, as bare text; needs no key",
	"POST /invocations":                      "MLflow's call of the function that the field `model` names, or of the only one: JSON and CSV; Parquet is a 415",
	"POST /endpoints/{model:.+}/invocations": "MLflow's `/invocations` of that function, as `mlflow.deployments` calls it",
	"POST /serving-endpoints/{model:.+}/invocations": "the same, as Databricks' clients call it",
	"GET /api/2.0/endpoints/":                        "the models, as `mlflow.deployments` lists them",
	"GET /api/2.0/endpoints/{model:.+}":              "one of them",
	"GET /api/2.0/serving-endpoints/":                "the same, as Databricks' clients list them",
	"GET /api/2.0/serving-endpoints/{model:.+}":      "one of them",

	"POST /v1/files":                             "keep a file (form: `file`, `purpose`)",
	"GET /v1/files":                              "the files of the key",
	"GET /v1/files/{id}":                         "one of them",
	"GET /v1/files/{id}/content":                 "its bytes",
	"DELETE /v1/files/{id}":                      "remove it",
	"POST /v1/batches":                           "begin a batch of the lines of a file",
	"GET /v1/batches":                            "the batches of the key",
	"GET /v1/batches/{id}":                       "one of them",
	"POST /v1/batches/{id}/cancel":               "end it",
	"POST /v1/messages/batches":                  "Anthropic's batches: begin one",
	"GET /v1/messages/batches":                   "those of the key",
	"GET /v1/messages/batches/{id}":              "one of them",
	"GET /v1/messages/batches/{id}/results":      "its answers, lines of JSON",
	"POST /v1/messages/batches/{id}/cancel":      "end it",
	"DELETE /v1/messages/batches/{id}":           "remove it",
	"GET /v1/async/{id}":                         "the answer of a request with `Prefer: respond-async`, or how far it is",
	"DELETE /v1/async/{id}":                      "cancel or remove it",
	"GET /v1/responses/{id}":                     "a response with `store: true`, as a whole: `stream=true` is 400, its events are not kept",
	"POST /v1/responses/compact":                 "not there: 501",
	"GET /tokenizer_info":                        "the special tokens and chat template of the model that `model=NAME` names, or of the only one",
	"GET /v1/realtime":                           "a WebSocket to the model that `model=NAME` names, or to the only one",
	"DELETE /v1/responses/{id}":                  "remove it",
	"GET /v1/responses/{id}/input_items":         "what it was asked",
	"POST /v1/responses/{id}/cancel":             "end one in the background",
	"POST /v1/conversations":                     "begin a conversation, with `items` and `metadata`",
	"GET /v1/conversations/{id}":                 "one of them",
	"POST /v1/conversations/{id}":                "change its `metadata`",
	"DELETE /v1/conversations/{id}":              "remove it with its items",
	"GET /v1/conversations/{id}/items":           "what is in it",
	"POST /v1/conversations/{id}/items":          "add to it",
	"GET /v1/conversations/{id}/items/{item}":    "one item",
	"DELETE /v1/conversations/{id}/items/{item}": "remove an item",

	"GET /rouse/v1/info":     "who serves, and which version",
	"GET /rouse/v1/devices":  "GPUs and host memory, with what is used and by what",
	"GET /rouse/v1/usage":    "GPU-seconds, requests and tokens by function and tenant: `from`, `to` (RFC 3339), `keys=true`",
	"GET /rouse/v1/history":  "what was held of each device, and decisions; `after=SEQ` returns only newer ones",
	"GET /rouse/v1/record":   "the [flight record](record.md)",
	"GET /rouse/v1/clusters": "clusters behind this front door",
	"GET /rouse/v1/picks":    "`request=ID`: which instances were chosen for a request, and why",
	"GET /rouse/v1/watch":    "what there is and then what changes, as server-sent events",
	"GET /rouse/v1/requests": "`tail=N`: the last lines of the access log",
	"GET /rouse/v1/events":   "`function=NAMESPACE/NAME&tail=N&follow=true`: [CloudEvents](events.md), lines of JSON",

	"GET /rouse/v1/functions":                                             "all functions",
	"GET /rouse/v1/functions/logs":                                        "`tail=N&follow=true`: what the instances of all print, each line after its function's name",
	"POST /rouse/v1/functions":                                            "declare one, or change it",
	"GET /rouse/v1/functions/{namespace}/{name}":                          "one of them, with its instances",
	"DELETE /rouse/v1/functions/{namespace}/{name}":                       "remove it",
	"GET /rouse/v1/functions/{namespace}/{name}/why":                      "the last decisions about it, with reasons",
	"GET /rouse/v1/functions/{namespace}/{name}/manifest":                 "the YAML that declares it, without the values of its environment",
	"GET /rouse/v1/keys":                                                  "clients' keys, without their secrets",
	"POST /rouse/v1/keys":                                                 "make one: an entry of the file of keys, without a hash; the key is in the answer, and nowhere else",
	"PATCH /rouse/v1/keys":                                                "change the one of `name=NAME`, by a JSON merge patch of its fields",
	"DELETE /rouse/v1/keys":                                               "revoke the one of `name=NAME`",
	"GET /rouse/v1/models":                                                "`search=TEXT`: models of the hub and of Ollama's library",
	"POST /rouse/v1/models":                                               "declare a function for one of them, `{\"model\": \"hf.co/ORG/NAME:QUANT\"}`",
	"GET /rouse/v1/functions/{namespace}/{name}/wakes":                    "the [traces](traces.md) of its last wakes",
	"GET /rouse/v1/functions/{namespace}/{name}/logs":                     "`tail=N&follow=true`: what its instances print",
	"GET /rouse/v1/functions/{namespace}/{name}/adapters":                 "its LoRA adapters",
	"POST /rouse/v1/functions/{namespace}/{name}/adapters":                "add one",
	"DELETE /rouse/v1/functions/{namespace}/{name}/adapters/{adapter:.+}": "remove one",
	"POST /rouse/v1/functions/{namespace}/{name}/wake":                    "wake it",
	"POST /rouse/v1/functions/{namespace}/{name}/sleep":                   "put it to sleep: `level=1`, `2`",
	"POST /rouse/v1/functions/{namespace}/{name}/stop":                    "unload it",
	"PUT /rouse/v1/functions/{namespace}/{name}/scale":                    "have so many instances awake for a time",
	"POST /rouse/v1/functions/{namespace}/{name}/scale":                   "the same, for who may only create there",

	"GET /rouse/v1/state":    "its state, load and memory",
	"GET /rouse/v1/logs":     "`tail=N&follow=true`: what its runtime prints",
	"POST /rouse/v1/wake":    "a grant: wake; answers when a token was generated",
	"POST /rouse/v1/sleep":   "sleep, after what runs has ended",
	"POST /rouse/v1/fence":   "refuse older orders from now on",
	"PUT /rouse/v1/adapters": "the LoRA adapters that it shall have",
	"POST /rouse/v1/stop":    "end, after what runs has ended",
}

// routesOf lists a router's paths as "METHOD PATH". HEAD comes with GET; a path that takes any method refuses them all.
func routesOf(r *mux.Router) (all []string, err error) {
	err = r.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return nil // it is chosen by something else
		}
		methods, err := route.GetMethods()
		if err != nil {
			return nil
		}
		for _, m := range methods {
			if m != http.MethodHead {
				all = append(all, m+" "+path)
			}
		}
		return nil
	})
	return all, err
}

// modelPlaces say where a request names its model.
var modelPlaces = map[api.ModelField]string{"": "", api.ModelInJSON: "field of the body", api.ModelInForm: "part of the form"}

// streams say what a stream is.
var streams = map[api.Stream]string{
	api.StreamPlain: "", api.StreamCompletion: "events to `[DONE]`", api.StreamResponses: "events to `response.completed`",
	api.StreamMessages: "events to `message_stop`", api.StreamLines: "lines of JSON",
}

// pathsPage is all paths that clients and administrators may call.
func pathsPage() (string, error) {
	told := map[string]bool{}
	var text strings.Builder
	text.WriteString("# Paths\n\nThe HTTP paths of the programs. This page is made from their routers by `make keys`. Requests and answers have the fields of OpenAI's, Anthropic's and Ollama's APIs;\n" +
		"[the engine's API](engine-api.md) has each field of ours, [clients](clients.md) says which runtime has what, and keys.\n\n" +
		"## For clients: a model's\n\nWho may call them: everybody who reaches the front door, or with `--keys` the bearers of a key for that model. A request finds its function by the field `model`, or the part of a form; paths without it are a\n" +
		"function's own host's (`NAME.NAMESPACE.DOMAIN`), where all paths but administrative ones are the function's. A runtime that has not got a path answers 404, and says what has its place.\n\n" +
		"| | path | model named in | stream | runtimes that may have it |\n|---|---|---|---|---|\n")
	paths := slices.SortedFunc(slices.Values(api.ClientPaths()), func(a, b api.ClientPath) int {
		return cmp.Or(strings.Compare(a.Pattern, b.Pattern), strings.Compare(a.Method, b.Method))
	})
	for _, p := range paths {
		runtimes := "all"
		if p.Runtimes != nil {
			runtimes = strings.Join(p.Runtimes, ", ")
		}
		fmt.Fprintf(&text, "| %s | `%s` | %s | %s | %s |\n", p.Method, p.Pattern, modelPlaces[p.Model], streams[p.Stream], runtimes)
	}
	own, err := routesOf(activator.Routes())
	if err != nil {
		return "", err
	}
	router := mux.NewRouter()
	server.NewAdmin(server.AdminConfig{}).Routes(router, func(h http.HandlerFunc) http.HandlerFunc { return h })
	everywhere, err := routesOf(router)
	if err != nil {
		return "", err
	}
	here, err := routesOf(local.Routes())
	if err != nil {
		return "", err
	}
	here = slices.DeleteFunc(here, func(p string) bool { return slices.Contains(everywhere, p) })
	var control []string
	for path, method := range functions.ControlPaths {
		if path != "/metrics" {
			control = append(control, method+" "+path)
		}
	}
	for _, s := range []struct {
		heading, about string
		paths          []string
	}{
		{"For clients: the front door's own", "Who may call them: as above. `GET` includes `HEAD`.", own},
		{"For clients: files, batches, later answers, stored responses", "With `rouse up --store`, or the component `store` in a cluster. Each key sees what it has made.", jobs.Paths()},
		{"For administrators", "On one machine at the socket of the user who runs the server, at the front door with the token of `--admin-token-file`, and for the page; in a cluster at the autoscaler,\n" +
			"by the API server's proxy and Kubernetes's rights. To all others they are not there. `rouse` and `kn rouse` are made of them.", everywhere},
		{"For administrators, on one machine only", "In a cluster these are `kubectl`'s and `kn`'s to say.", here},
		{"An instance's own port", "For the control plane, which has its token; clients never reach it. Grants and orders carry an epoch, and older ones are refused.", control},
	} {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| | path | |\n|---|---|---|\n", s.heading, s.about)
		slices.SortFunc(s.paths, func(a, b string) int { return strings.Compare(pathOf(a)+a, pathOf(b)+b) })
		for _, p := range slices.Compact(s.paths) {
			meaning := meanings[p]
			if meaning == "" {
				return "", fmt.Errorf("no line says what %s is: add it to meanings", p)
			}
			told[p] = true
			method, path, _ := strings.Cut(p, " ")
			fmt.Fprintf(&text, "| %s | `%s` | %s |\n", method, strings.ReplaceAll(path, ":.+}", "}"), meaning)
		}
	}
	for p := range meanings {
		if !told[p] {
			return "", fmt.Errorf("a line says what %s is, and no router has it", p)
		}
	}
	text.WriteString("\nWhat activators and autoscalers say to one another is not an API: it changes with the version, and they refuse others' calls.\n")
	return text.String(), nil
}

// pathOf is a route without its method.
func pathOf(route string) string {
	_, path, _ := strings.Cut(route, " ")
	return path + " "
}
