package knative

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

const maxOrder = 1 << 20

// controls serves the activator's paths of package api/control, with the cluster's token.
type controls struct {
	core      *activator.Activator
	share     *share.Share
	instances *instances
	offers    *offers
	observe   func(api.InstanceStatus)
	failed    func(name api.FunctionName, err *api.Error)
	clusters  func() []admin.Cluster
	far       func(name api.FunctionName) []admin.Far
	token     *clusterToken
}

func (c *controls) handler() http.Handler {
	r := mux.NewRouter()
	add := func(method, path string, h http.HandlerFunc) { r.Path(path).Methods(method).HandlerFunc(h) }
	add(http.MethodPost, control.PathGrants, carryOut(func(_ context.Context, g api.Grant) error {
		err := checkGrant(g)
		if err == nil {
			c.core.Grant(g)
		}
		return err
	}))
	add(http.MethodPost, control.PathRevoke, carryOut(func(ctx context.Context, g api.Grant) error {
		err := checkGrant(g)
		if err == nil {
			err = c.core.Revoke(ctx, g)
		}
		return err
	}))
	add(http.MethodPost, control.PathFail, carryOut(c.fail))
	add(http.MethodPost, control.PathInstances, carryOut(c.report))
	add(http.MethodGet, control.PathStats, c.stats)
	add(http.MethodPost, control.PathStats, func(w http.ResponseWriter, r *http.Request) {
		c.core.Report(api.FunctionName(r.URL.Query().Get("function")))
		w.WriteHeader(http.StatusNoContent)
	})
	add(http.MethodPost, control.PathUsage, func(w http.ResponseWriter, r *http.Request) { c.share.Serve(w, r, nil) }) // the token has proved it
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

func carryOut[T any](do func(ctx context.Context, order T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var order T
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder)).Decode(&order)
		if err != nil {
			err = api.BadRequest("", "the body is not what is wanted: %v", api.Explain(err))
		} else {
			err = do(r.Context(), order)
		}
		if err != nil {
			api.WriteError(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func checkGrant(g api.Grant) error {
	if g.Instance == "" || g.Function == "" {
		return api.BadRequest("", "the grant names no instance or no function: want both")
	}
	return nil
}

func (c *controls) fail(_ context.Context, f control.FailRequest) error {
	switch {
	case f.Function == "", f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return api.BadRequest("", "function %q, status %d: want a name, and 0 or a status of 400 to 599", f.Function, f.Status)
	case f.Status == 0:
		c.failed(f.Function, nil)
	default:
		c.failed(f.Function, &api.Error{Status: f.Status, Code: f.Code, Message: f.Message, RetryAfter: f.RetryAfter})
	}
	c.offers.touched(f.Function)
	return nil
}

func (c *controls) report(_ context.Context, report control.InstanceReport) error {
	st := report.Status
	switch {
	case st.Instance == "" || st.Function == "" || st.State == "":
		return api.BadRequest("", "the report names no instance, no function or no state: want all three")
	case st.State == api.Gone && !c.core.Declared(st.Function): // its revision is gone too
		c.instances.learn(report)
	case st.State != api.Gone && st.Endpoint == "" && st.State != api.Starting && st.State != api.Unhealthy:
		return api.BadRequest("", "the report of %s, which is %s, has no endpoint", st.Instance, st.State)
	default:
		c.instances.learn(report)
		c.core.Hold(st.Function, st.Instance, report.GPUs)
		c.observe(st)
		c.offers.touched(st.Function)
	}
	return nil
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
