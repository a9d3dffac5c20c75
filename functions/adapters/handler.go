package adapters

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// maxBody bounds the body of a registration.
const maxBody = 64 << 10

// prefix of the paths of [Registry.ServeHTTP].
const prefix = "/adapters/"

// ServeHTTP answers GET /adapters/info, POST /adapters/{id} and DELETE
// /adapters/{id}. All but GET change the instance and are the control plane's.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id, found := strings.CutPrefix(req.URL.Path, prefix)
	switch {
	case !found || id == "":
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "there is nothing at %s: GET /adapters/info lists the adapters", req.URL.Path))
	case req.Method == http.MethodGet && id == "info":
		api.WriteJSON(w, http.StatusOK, r.info())
	case req.Method == http.MethodPost:
		r.register(w, req, api.ModelName(id))
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
		w.Header().Set("Allow", allow)
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want %s", req.Method, req.URL.Path, allow))
	}
}

// info is the answer of the protocol, and the list.
type info struct {
	Config struct {
		// Enabled: adapters can be registered, or some are.
		Enabled bool `json:"enabled"`
		// MaxActiveAdapters is how many can be active at once; 0: the runtime has not said.
		MaxActiveAdapters int `json:"maxActiveAdapters,omitempty"`
	} `json:"config"`
	State struct {
		ActiveAdapters []api.ModelName `json:"activeAdapters"`
	} `json:"state"`
	Adapters []Adapter `json:"adapters"`
}

func (r *Registry) info() info {
	v := info{Adapters: r.List()}
	v.State.ActiveAdapters = []api.ModelName{}
	for _, a := range v.Adapters {
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

// register answers 200 for an adapter that is loaded, 202 for one that will be.
func (r *Registry) register(w http.ResponseWriter, req *http.Request, id api.ModelName) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		api.WriteError(w, err)
		return
	}
	var in struct {
		Path string `json:"path"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err = dec.Decode(&in)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		api.WriteError(w, api.BadRequest("", `the body is not what is wanted, {"path": "…"}: %v`, err))
		return
	}
	a, err := r.Register(req.Context(), id, in.Path)
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
