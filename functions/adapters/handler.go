package adapters

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/proxy"
)

const maxBody = 64 << 10

// Path is the shortest path of [Registry.ServeHTTP].
const Path = "/adapters"

const prefix = Path + "/"

// ServeHTTP answers GET /adapters and /adapters/info, POST and DELETE /adapters/{id}, and POST /adapters, with the name in the body. The
// caller must keep all but GET for the control plane.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id, found := strings.CutPrefix(req.URL.Path, prefix)
	switch {
	case req.URL.Path == Path && req.Method == http.MethodGet:
		api.WriteJSON(w, http.StatusOK, r.info())
	case req.URL.Path == Path && req.Method == http.MethodPost:
		r.post(w, req, "")
	case req.URL.Path == Path:
		w.Header().Set("Allow", "GET, POST")
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want GET or POST; DELETE %s/NAME removes an adapter", req.Method, Path, Path))
	case !found || id == "":
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "there is nothing at %s: GET /adapters/info lists the adapters", req.URL.Path))
	case req.Method == http.MethodGet && id == "info":
		api.WriteJSON(w, http.StatusOK, r.info())
	case req.Method == http.MethodPost:
		r.post(w, req, api.ModelName(id))
	case req.Method == http.MethodDelete:
		if err := r.Remove(req.Context(), api.ModelName(id)); err != nil {
			api.WriteError(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		allow := "POST, DELETE"
		if id == "info" {
			allow = "GET"
		}
		proxy.RefuseMethod(w, req, allow)
	}
}

type info struct {
	Config struct {
		Enabled           bool `json:"enabled"`
		MaxActiveAdapters int  `json:"maxActiveAdapters,omitempty"`
	} `json:"config"`
	State struct {
		ActiveAdapters []api.ModelName `json:"activeAdapters"`
	} `json:"state"`
	Adapters []Adapter `json:"adapters"`
}

func (r *Registry) info() info {
	v := info{Adapters: r.List()}
	v.State.ActiveAdapters = []api.ModelName{}
	for k, a := range v.Adapters {
		v.Adapters[k].Path, v.Adapters[k].Message = "", "" // clients read this: neither folders nor secrets in URLs
		if a.State == Loaded {
			v.State.ActiveAdapters = append(v.State.ActiveAdapters, a.Name)
		}
	}
	if r.cfg.Most != nil {
		v.Config.MaxActiveAdapters = r.cfg.Most()
	}
	v.Config.Enabled = r.cfg.Root != "" || len(v.Adapters) > 0
	if v.Adapters == nil {
		v.Adapters = []Adapter{}
	}
	return v
}

// post answers 200 if the adapter is loaded, and 202 if it will be.
func (r *Registry) post(w http.ResponseWriter, req *http.Request, id api.ModelName) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		api.WriteError(w, err)
		return
	}
	var in struct {
		Name api.ModelName `json:"name"`
		Path string        `json:"path"`
	}
	if err := api.Decode(bytes.NewReader(raw), &in); err != nil {
		api.WriteError(w, api.BadRequest("", `the body is not what is wanted, {"path": "…"}: %v`, err))
		return
	}
	if id != "" && in.Name != "" && in.Name != id {
		api.WriteError(w, api.BadRequest("name", "the path names the adapter %s, and the body %s: want one name", id, in.Name))
		return
	}
	a, err := r.Register(req.Context(), cmp.Or(id, in.Name), in.Path)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	status := http.StatusOK
	if a.State != Loaded {
		status = http.StatusAccepted
	}
	api.WriteJSON(w, status, a)
}
