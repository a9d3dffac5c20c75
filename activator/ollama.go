package activator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// Ollama's API at the front door. Requests about all models wake no instance; requests that would change models are
// refused. A function with its own command or image may have this API: it gets the request.

// Clients check ollamaVersion before newer calls.
const ollamaVersion = "0.17.4"

var ollamaChanges = []string{"/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{digest}"}

// f is nil at the front door.
func isOllama(path string, f *queue.Function) bool {
	return strings.HasPrefix(path, "/api/") && (f == nil || isLikeOllama(f.Spec()))
}

// isLikeOllama reports whether a function certainly has Ollama's API. Its own handler gets requests unchanged.
func isLikeOllama(spec *api.Function) bool {
	chat, _ := api.FindPath("", "/api/chat")
	return slices.Contains(chat.Runtimes, spec.Runtime.Kind) && (spec.Runtime.Kind == api.RuntimeOllama || len(spec.Handler) == 0)
}

func (a *Activator) routeOllama(r *mux.Router) {
	get(r, "/api/tags", a.ifOllama(a.listed(a.listOllama)))
	get(r, "/api/ps", a.ifOllama(a.listed(a.listRunning)))
	get(r, "/api/version", a.ifOllama(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, r, map[string]string{"version": ollamaVersion})
	}))
	r.Path("/api/pull").HandlerFunc(a.ifOllama(a.pull))
	for _, p := range ollamaChanges {
		r.Path(p).HandlerFunc(a.refuseChange)
	}
	get(r, "/", a.home)
}

// Ollama's clients expect a greeting.
func (a *Activator) home(w http.ResponseWriter, r *http.Request) {
	if a.deps.Page != nil {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html") {
			a.deps.Page.ServeHTTP(w, r)
			return
		}
	}
	_, _ = w.Write([]byte("Rouse is running\n"))
}

// Without such a function, clients shall find no such server.
func (a *Activator) ifOllama(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if slices.ContainsFunc(a.names.Load().list, func(f *queue.Function) bool { return isLikeOllama(f.Spec()) }) {
			next(w, r)
			return
		}
		a.refuse(w, r, api.Errorf(http.StatusNotFound, api.CodeUnknownPath,
			"no function here has Ollama's API, which %s is of: GET /v1/models lists the models, for POST /v1/chat/completions", r.URL.Path))
	}
}

// A model that the client may not see does not exist.
func (a *Activator) pull(w http.ResponseWriter, r *http.Request) {
	_, account, bad := a.clientOf(r)
	if bad != nil {
		a.unauthorized(w, r, api.AsError(bad))
		return
	}
	var asked struct{ Model, Name string }
	err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&asked)
	name := cmp.Or(asked.Model, asked.Name)
	t, unknown := a.names.Load().find(name, a.mayList(r))
	if err != nil || unknown != nil || account != nil && !(listed{name: api.ModelName(name), t: t}).visible(account.Rights().Allows) {
		a.refuseChange(w, r)
		return
	}
	writeJSON(w, r, map[string]string{"status": "success"})
}

func (a *Activator) refuseChange(w http.ResponseWriter, r *http.Request) {
	a.refuse(w, r, api.Errorf(http.StatusNotFound, api.CodeUnknownPath,
		"%s %s: clients can't change the models here; each is declared in the manifest of a function", quoteMethod(r.Method), r.URL.Path))
}

// oldName returns the field "name", which Ollama's command line sends instead of "model".
func oldName(body []byte) string {
	var old struct{ Name string }
	if json.Unmarshal(body, &old) != nil {
		return ""
	}
	return old.Name
}

// As Ollama does.
func tagged(name api.ModelName) string {
	if strings.Contains(string(name), ":") {
		return string(name)
	}
	return string(name) + names.Latest
}

// Clients expect every field.
type ollamaModel struct {
	Name       string           `json:"name"`
	Model      string           `json:"model"`
	ModifiedAt time.Time        `json:"modified_at"`
	Size       api.Bytes        `json:"size"`
	Digest     string           `json:"digest"`
	Details    api.ModelDetails `json:"details"`
}

type runningModel struct {
	Name          string           `json:"name"`
	Model         string           `json:"model"`
	Size          api.Bytes        `json:"size"`
	Digest        string           `json:"digest"`
	Details       api.ModelDetails `json:"details"`
	ExpiresAt     time.Time        `json:"expires_at"`
	SizeVRAM      api.Bytes        `json:"size_vram"`
	ContextLength int              `json:"context_length"`
}

// Clients tell models apart by the digest of the declaration.
func digest(spec *api.Function) string {
	sum := sha256.Sum256([]byte(string(spec.Name) + "\x00" + spec.Runtime.Model))
	return hex.EncodeToString(sum[:])
}

func (a *Activator) listOllama(w http.ResponseWriter, r *http.Request, has func(...string) bool) {
	list := []ollamaModel{}
	for _, m := range a.names.Load().models {
		f := m.t.first()
		spec := f.Spec()
		if isLikeOllama(spec) && m.visible(has) {
			facts := f.Model()
			list = append(list, ollamaModel{Name: tagged(m.name), Model: tagged(m.name), ModifiedAt: f.Created, Size: facts.Size, Digest: digest(spec), Details: facts.Details})
		}
	}
	writeJSON(w, r, map[string]any{"models": list})
}

func (a *Activator) listRunning(w http.ResponseWriter, r *http.Request, has func(...string) bool) {
	list := []runningModel{}
	now := time.Now()
	for _, f := range a.names.Load().list {
		m, awake := running(f, now)
		listed := slices.ContainsFunc(list, func(l runningModel) bool { return l.Name == m.Name })
		if awake && !listed && (has == nil || has(namesFor(f, "", "")...)) {
			list = append(list, m)
		}
	}
	// As Ollama: the model that stays longest first.
	slices.SortStableFunc(list, func(x, y runningModel) int { return y.ExpiresAt.Compare(x.ExpiresAt) })
	writeJSON(w, r, map[string]any{"models": list})
}

func lines(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "application/x-ndjson") && h.Get("Content-Encoding") == ""
}

// forever is shown as "Forever" by Ollama's clients.
const forever = 100 * 365 * 24 * time.Hour

// awake is false without an awake instance or without Ollama's API.
func running(f *queue.Function, now time.Time) (m runningModel, awake bool) {
	spec := f.Spec()
	if !isLikeOllama(spec) {
		return m, false
	}
	activity := f.Activity()
	idle := activity.LastRequest
	for _, st := range activity.Instances {
		if st.State != api.Awake && st.State != api.Draining {
			continue
		}
		awake = true
		if st.Since.After(idle) {
			idle = st.Since // no request has come since
		}
		devices := st.Memory.PerDevice * api.Bytes(max(st.Memory.Devices, len(st.Devices)))
		m.Size += st.Memory.Host + devices
		m.SizeVRAM += devices
	}
	facts := f.Model()
	m.Name, m.Model, m.Digest, m.Details, m.ContextLength = tagged(spec.Model), tagged(spec.Model), digest(spec), facts.Details, facts.Context
	if activity.Running > 0 {
		idle = now
	}
	m.ExpiresAt = idle.Add(cmp.Or(spec.SleepAfter, forever))
	return m, awake
}
