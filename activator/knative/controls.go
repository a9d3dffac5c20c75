package knative

import (
	"crypto/subtle"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

// maxOrder bounds the body of a control request.
const maxOrder = 1 << 20

// controls serves the autoscaler and kn-rouse: an activator's paths in package api/control. Each requires the
// cluster's token; all other paths are closed.
type controls struct {
	core      *activator.Activator
	share     *share.Share
	instances *instances
	offers    *offers // nil: nothing is offered
	observe   func(api.InstanceStatus)
	failed    func(name api.FunctionName, err *api.Error)
	clusters  func() []admin.Cluster
	far       func(name api.FunctionName) []admin.Far
	token     *clusterToken
	log       *slog.Logger
}

func (c *controls) handler() http.Handler {
	r := mux.NewRouter()
	add := func(method, path string, h http.HandlerFunc) { r.Path(path).Methods(method).HandlerFunc(h) }
	add(http.MethodPost, control.PathGrants, c.grant)
	add(http.MethodPost, control.PathRevoke, c.revoke)
	add(http.MethodPost, control.PathFail, c.fail)
	add(http.MethodPost, control.PathInstances, c.report)
	add(http.MethodGet, control.PathStats, c.stats)
	add(http.MethodPost, control.PathStats, c.demand)
	add(http.MethodPost, control.PathUsage, c.usage)
	add(http.MethodGet, admin.PathClusters, func(w http.ResponseWriter, _ *http.Request) {
		api.WriteJSON(w, http.StatusOK, append([]admin.Cluster{}, c.clusters()...))
	})
	add(http.MethodGet, admin.PathPicks, func(w http.ResponseWriter, r *http.Request) {
		api.WriteJSON(w, http.StatusOK, c.core.Picks(r.FormValue("request")))
	})
	add(http.MethodGet, admin.PathFar, func(w http.ResponseWriter, r *http.Request) {
		api.WriteJSON(w, http.StatusOK, append([]admin.Far{}, c.far(api.FunctionName(r.URL.Query().Get("function")))...))
	})
	r.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "there is no such path here"))
	})
	r.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		api.WriteError(w, api.Errorf(http.StatusMethodNotAllowed, "", "the path has another method"))
	})
	return c.guard(r)
}

// guard admits callers with the cluster's token.
func (c *controls) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := c.token.current()
		got, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case want == "":
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, "",
				"the Secret %s in %s has no key %s yet: rouse-autoscaler makes it", control.ControlSecret, control.SystemNamespace, control.ControlSecretKey))
		case subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1:
			api.WriteError(w, api.Errorf(http.StatusUnauthorized, "",
				"the bearer token is not that of the Secret %s in %s", control.ControlSecret, control.SystemNamespace))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// read decodes a request's body. If that fails it answers the request and returns false.
func read[T any](w http.ResponseWriter, r *http.Request) (order T, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder)).Decode(&order); err != nil {
		api.WriteError(w, api.BadRequest("", "the body is not what is wanted: %v", api.Explain(err)))
		return order, false
	}
	return order, true
}

func (c *controls) grant(w http.ResponseWriter, r *http.Request) {
	g, ok := readGrant(w, r)
	if !ok {
		return
	}
	c.core.Grant(g)
	w.WriteHeader(http.StatusNoContent)
}

func (c *controls) revoke(w http.ResponseWriter, r *http.Request) {
	g, ok := readGrant(w, r)
	if !ok {
		return
	}
	if err := c.core.Revoke(r.Context(), g); err != nil {
		api.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func readGrant(w http.ResponseWriter, r *http.Request) (api.Grant, bool) {
	g, ok := read[api.Grant](w, r)
	if ok && (g.Instance == "" || g.Function == "") {
		api.WriteError(w, api.BadRequest("", "the grant names no instance or no function: want both"))
		return g, false
	}
	return g, ok
}

func (c *controls) fail(w http.ResponseWriter, r *http.Request) {
	f, ok := read[control.FailRequest](w, r)
	switch {
	case !ok:
		return
	case f.Function == "", f.Status != 0 && (f.Status < 400 || f.Status > 599):
		api.WriteError(w, api.BadRequest("", "function %q, status %d: want a name, and 0 or a status of 400 to 599", f.Function, f.Status))
		return
	case f.Status == 0:
		c.failed(f.Function, nil)
	default:
		c.failed(f.Function, &api.Error{Status: f.Status, Code: f.Code, Message: f.Message, RetryAfter: f.RetryAfter})
	}
	c.offers.touched(f.Function)
	w.WriteHeader(http.StatusNoContent)
}

func (c *controls) report(w http.ResponseWriter, r *http.Request) {
	report, ok := read[control.InstanceReport](w, r)
	if !ok {
		return
	}
	st := report.Status
	switch {
	case st.Instance == "" || st.Function == "" || st.State == "":
		api.WriteError(w, api.BadRequest("", "the report names no instance, no function or no state: want all three"))
		return
	case st.State == api.Gone && !c.core.Declared(st.Function): // its revision is gone too
		c.instances.learn(report)
	case st.State != api.Gone && st.Endpoint == "" && st.State != api.Starting && st.State != api.Unhealthy:
		api.WriteError(w, api.BadRequest("", "the report of %s, which is %s, has no endpoint", st.Instance, st.State))
		return
	default:
		c.instances.learn(report)
		c.core.Hold(st.Function, st.Instance, report.GPUs)
		c.observe(st)
		c.offers.touched(st.Function)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *controls) stats(w http.ResponseWriter, r *http.Request) {
	name := api.FunctionName(r.URL.Query().Get("function"))
	s, known := c.core.Stats(name)
	if !known {
		api.WriteError(w, api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "this activator knows no function %q: want ?function=NAMESPACE/REVISION", name))
		return
	}
	api.WriteJSON(w, http.StatusOK, s)
}

func (c *controls) demand(w http.ResponseWriter, r *http.Request) {
	c.core.Report(api.FunctionName(r.URL.Query().Get("function")))
	w.WriteHeader(http.StatusNoContent)
}

// usage exchanges clients' use with another activator.
func (c *controls) usage(w http.ResponseWriter, r *http.Request) {
	c.share.Serve(w, r, nil) // the token has proved it
}
