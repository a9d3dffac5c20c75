package knative

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// own maps the cluster's own Services to the revision with the most traffic, of which agents elsewhere are further
// instances. The front door of clusters uses the Service's name, and the activator the revision's.
type own struct {
	*ownNames
}

type ownNames struct {
	mu        sync.Mutex                            // guards the fields below; no other lock is taken while it is held
	revisions map[api.FunctionName]api.FunctionName // by Service
	services  map[api.FunctionName]api.FunctionName // by revision
}

func newOwn() own {
	return own{&ownNames{revisions: map[api.FunctionName]api.FunctionName{}, services: map[api.FunctionName]api.FunctionName{}}}
}

// here returns the activator's name for a function of the front door of clusters.
func (o own) here(service api.FunctionName) api.FunctionName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name, is := o.revisions[service]; is {
		return name
	}
	return service
}

// there returns the name at the front door of clusters for a function of the activator.
func (o own) there(revision api.FunctionName) api.FunctionName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name, is := o.services[revision]; is {
		return name
	}
	return revision
}

// isOwn reports whether a revision stands for its Service.
func (o own) isOwn(revision api.FunctionName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, is := o.services[revision]
	return is
}

// set makes a revision stand for a Service; empty: none does.
func (o own) set(service, revision api.FunctionName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.services, o.revisions[service])
	if delete(o.revisions, service); revision != "" {
		o.revisions[service], o.services[revision] = revision, service
	}
}

// Own implements [farServices].
func (e *elsewhere) Own(service api.Function, revision api.FunctionName) {
	e.Near(service, true)
	if !e.isOwn(revision) || e.here(service.Name) != revision {
		e.Moved(service.Name, func() {
			if e.set(service.Name, revision); service.Name != revision {
				e.core.RemoveFunction(service.Name) // only agents had it
			}
		})
	}
	if stats, known := e.core.Stats(revision); known {
		for _, st := range stats.Instances {
			e.observe(st)
		}
	}
}

// Disown implements [farServices].
func (e *elsewhere) Disown(service api.FunctionName) {
	e.Unplace(service)
	e.Near(api.Function{Name: service}, false)
	e.Moved(service, func() { e.set(service, "") })
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

// observe passes the state of an instance of the cluster to the front door of clusters.
func (e *elsewhere) observe(st api.InstanceStatus) {
	if e.isOwn(st.Function) {
		st.Function = e.there(st.Function)
		e.ObserveNear(st)
	}
}

// failNear tells the front door of clusters that a revision can't start.
func (e *elsewhere) failNear(revision api.FunctionName, err *api.Error) {
	e.FailNear(e.there(revision), err)
}

// Emit implements [api.Emitter]: it passes the activator's events to the front door of clusters, under its names.
func (e *elsewhere) Emit(ev api.Event) { e.Front.Emit(renamed(ev, e.there)) }

// toRevisions returns an emitter to the cluster's own autoscaler, under the revisions' names.
func (e *elsewhere) toRevisions(near api.Emitter) api.Emitter {
	return api.EmitterFunc(func(ev api.Event) { near.Emit(renamed(ev, e.here)) })
}

// renamed returns an event with its function's other name.
func renamed(ev api.Event, name func(api.FunctionName) api.FunctionName) api.Event {
	is := api.FunctionName(ev.Subject)
	to := name(is)
	if to == is {
		return ev
	}
	ev.Subject = string(to)
	var d api.Demand
	if ev.Type == api.EventDemand && json.Unmarshal(ev.Data, &d) == nil {
		d.Function = to
		ev.Data, _ = json.Marshal(d) // it was made from JSON
	}
	return ev
}

// Sees implements [activator.Sight].
func (e *elsewhere) Sees(name api.FunctionName) func(client string, i api.InstanceID) bool {
	return e.Front.Sees(e.there(name))
}

// Bars implements [activator.Sight].
func (e *elsewhere) Bars(name api.FunctionName, client string) *api.Error {
	return e.Front.Bars(e.there(name), client)
}

// serve answers a request of another front door.
func (e *elsewhere) serve(w http.ResponseWriter, r *http.Request, service api.FunctionName) {
	e.core.ServeAtOnce(w, r, e.here(service))
}

// PutFunction implements [door.Activator].
func (e *elsewhere) PutFunction(f api.Function) { e.core.PutFunction(f) }

// RemoveFunction implements [door.Activator].
func (e *elsewhere) RemoveFunction(name api.FunctionName) { e.core.RemoveFunction(name) }

// ObserveInstance implements [door.Activator].
func (e *elsewhere) ObserveInstance(st api.InstanceStatus) {
	if st.Function = e.here(st.Function); e.core.Declared(st.Function) {
		e.core.ObserveInstance(st)
	}
}

// Fail implements [door.Activator].
func (e *elsewhere) Fail(name api.FunctionName, err *api.Error) { e.core.Fail(e.here(name), err) }
