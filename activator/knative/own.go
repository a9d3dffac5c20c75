package knative

import (
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// Own implements [farServices].
func (e *elsewhere) Own(service api.Function, revision api.FunctionName) {
	e.Near(service, revision)
	if stats, known := e.core.Stats(revision); known {
		for _, st := range stats.Instances {
			e.ObserveNear(st)
		}
	}
}

// Disown implements [farServices].
func (e *elsewhere) Disown(service api.FunctionName) {
	e.Unplace(service)
	e.Near(api.Function{Name: service}, "")
}

// Place implements [farServices].
func (e *elsewhere) Place(service api.Function) {
	var err error
	if e.cfg.Owner == "" {
		err = api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed,
			"the front door has no name, by which it would own what it creates elsewhere: give clusters.yaml (the Secret rouse-clusters) a name, and restart the activators")
	} else {
		err = e.Front.Place(service)
	}
	if err == nil {
		return
	}
	e.log.Warn("a Service can't be had from clusters elsewhere", "service", service.Name, "error", err)
	e.core.PutFunction(service)
	e.core.Fail(service.Name, &api.Error{Status: http.StatusServiceUnavailable, Code: api.CodeStartFailed, NoRetry: true, Message: "the function can't run: " + err.Error()})
}

// serve answers a request of another front door.
func (e *elsewhere) serve(w http.ResponseWriter, r *http.Request, service api.FunctionName) {
	e.core.ServeAtOnce(w, r, e.Local(service))
}

// PutFunction implements [door.Activator].
func (e *elsewhere) PutFunction(f api.Function) { e.core.PutFunction(f) }

// RemoveFunction implements [door.Activator].
func (e *elsewhere) RemoveFunction(name api.FunctionName) { e.core.RemoveFunction(name) }

// ObserveInstance implements [door.Activator].
func (e *elsewhere) ObserveInstance(st api.InstanceStatus) {
	if e.core.Declared(st.Function) {
		e.core.ObserveInstance(st)
	}
}

// Fail implements [door.Activator].
func (e *elsewhere) Fail(name api.FunctionName, err *api.Error) { e.core.Fail(name, err) }
