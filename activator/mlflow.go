package activator

import (
	"io"
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// MLflow's scoring server ignores the field "model", which names the function here. mlflow.deployments and
// Databricks' clients name it in the path.

const pathInvocations = "/invocations"

func (a *Activator) routeMLflow(r *mux.Router) {
	r.Path(pathInvocations).Methods(http.MethodPost).HandlerFunc(a.serveModel)
	get(r, "/ping", a.ifTaken("application/json", "\n"))
	get(r, "/version", a.ifTaken("application/json", a.cfg.Version))
	r.Path("/{path:invocations|ping|health|version}/").HandlerFunc(withoutSlash)
	for _, prefix := range []string{"/endpoints/", "/serving-endpoints/"} {
		r.Path(prefix + "{model:.+}" + pathInvocations).Methods(http.MethodPost).HandlerFunc(a.serveEndpoint)
		list := "/api/2.0" + prefix
		get(r, list, a.listed(a.listEndpoints))
		get(r, list+"{model:.+}", a.showEndpoint)
	}
}

// As MLflow's server does.
func withoutSlash(w http.ResponseWriter, r *http.Request) {
	inbound.Unread(w, r)
	to := url.URL{Path: "/" + mux.Vars(r)["path"], RawQuery: r.URL.RawQuery}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// ifTaken answers with a text unless the activator is draining.
func (a *Activator) ifTaken(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if a.inFlight.draining.Load() {
			api.WriteError(w, shuttingDown())
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text) // the client may have left
	}
}

func (a *Activator) serveEndpoint(w http.ResponseWriter, r *http.Request) {
	name, names := mux.Vars(r)["model"], a.names.Load()
	f, err := names.model(name, a.mayList(r))
	if err == nil && names.adapter(name, f) != "" {
		err = api.BadRequest("model", "%s is an adapter of %s, which a path can't name: POST to the endpoint of %s, with the adapter in the field model", quoteName(name), f.Name, f.Name)
	}
	if err != nil {
		a.missing(w, r, name, err)
		return
	}
	in := new(http.Request)
	*in = *r
	in.URL = &url.URL{Path: pathInvocations, RawQuery: r.URL.RawQuery}
	a.serve(w, in, f, false)
}

// mlflow.deployments and Databricks' clients ignore each other's fields.
type endpoint struct {
	Name api.ModelName `json:"name"`
	// The kind of request for a text; empty: unknown.
	Type  string        `json:"endpoint_type"`
	Task  string        `json:"task,omitempty"`
	Model endpointModel `json:"model"`
	URL   string        `json:"endpoint_url"`
	// Limit is null; mlflow.deployments requires it.
	Limit   *struct{}         `json:"limit"`
	State   map[string]string `json:"state"`
	Created int64             `json:"creation_timestamp"` // in ms
}

type endpointModel struct {
	Name     api.ModelName `json:"name"`
	Provider string        `json:"provider"`
}

func (m listed) endpoint() endpoint {
	e := endpoint{Name: m.name, Model: endpointModel{m.name, "rouse"}, URL: "/endpoints/" + string(m.name) + pathInvocations,
		State: map[string]string{"ready": "READY", "config_update": "NOT_UPDATING"}, Created: m.t.first().Created.UnixMilli()}
	if !isPlain(m.t.first()) {
		e.Type, e.Task = "llm/v1/chat", "llm/v1/chat"
	}
	return e
}

// listEndpoints lists models without adapters.
func (a *Activator) listEndpoints(w http.ResponseWriter, r *http.Request, has func(...string) bool) {
	list := []endpoint{}
	for _, m := range a.names.Load().models {
		if m.parent == "" && m.visible(has) {
			list = append(list, m.endpoint())
		}
	}
	writeJSON(w, r, map[string]any{"endpoints": list})
}

func (a *Activator) showEndpoint(w http.ResponseWriter, r *http.Request) {
	if m, ok := a.find(w, r); ok {
		writeJSON(w, r, m.endpoint())
	}
}
