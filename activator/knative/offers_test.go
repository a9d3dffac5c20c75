package knative

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// offering is a rig whose cluster is offered to front doors.
type offering struct {
	*rig
	*offers
	demand  map[api.FunctionName]int // as last told to the autoscaler, by revision
	touched map[api.FunctionName]int
}

func newOffering(t *testing.T) *offering {
	t.Helper()
	o := &offering{rig: newRig(t, host), demand: map[api.FunctionName]int{}, touched: map[api.FunctionName]int{}}
	o.offers = newOffers(o.rig.core, api.EmitterFunc(func(e api.Event) {
		var d api.Demand
		if err := json.Unmarshal(e.Data, &d); err != nil || d.Activator != "pod/front/x" {
			t.Errorf("demand %s: %v, want one of pod/front/x", e.Data, err)
		}
		o.demand[d.Function] = d.Waiting
	}), "pod")
	o.offers.changed = func(name api.FunctionName) { o.touched[name]++ }
	o.watch.offers = o.offers
	return o
}

// wants sends a front door's demand for a Service.
func (o *offering) wants(n int) {
	o.emit(api.NewEvent(api.EventDemand, "/front/x", "default/tiny", api.Demand{Function: "default/tiny", Activator: "front/x", Waiting: n}))
}

// asks sends a front door's request for a Service.
func (o *offering) asks(service api.FunctionName) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	o.offers.serve(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"any"}`)), service)
	return w
}

// TestOffersAService: a Service is one function for front doors, whatever its revisions.
func TestOffersAService(t *testing.T) {
	o := newOffering(t)
	if got := o.asks("default/tiny"); got.Code != http.StatusNotFound {
		t.Errorf("before there is a Service: %d", got.Code)
	}
	o.watch.revision(revision("tiny-00001", config.Class, config.AnnotationServedName, "small", config.AnnotationMaxScale, "2"))
	o.watch.revision(revision("tiny-00002", config.Class, config.AnnotationServedName, "tiny-2"))
	o.watch.revision(revision("stock-00001", "kpa.autoscaling.knative.dev"))
	one := func() api.Function {
		t.Helper()
		list := o.offers.functions()
		if len(list) != 1 || list[0].Name != "default/tiny" || list[0].Service != "" {
			t.Fatalf("%+v, want the Service alone", list)
		}
		return list[0]
	}
	if f := one(); f.Model != "tiny-2" {
		t.Errorf("without traffic: the model %s, want the newest revision's", f.Model)
	}
	o.watch.route(route(map[string]int64{"tiny-00001": 90, "tiny-00002": 10}))
	if f := one(); f.Model != "small" || !slices.Equal(f.Aliases, []api.ModelName{"tiny-2"}) || f.MaxScale != 2 {
		t.Errorf("%+v, want what most requests go to, and the other's names", f)
	}
	if got := o.asks("default/tiny"); got.Code != http.StatusServiceUnavailable || got.Header().Get(control.HeaderRefused) == "" {
		t.Errorf("where nothing is awake: %d, %v; want it given back", got.Code, got.Header())
	}
	o.rig.core.ObserveInstance(awake("tiny-00002", "b", "10.0.0.2"))
	if s, ok := o.stats("default/tiny"); !ok || len(s.Instances) != 1 || s.Failed != "" {
		t.Errorf("%+v, %t; want the instance of the one that is awake", s, ok)
	}
	if got := o.asks("default/tiny"); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "10.0.0.2") {
		t.Errorf("%d %s, want it answered where a slot is free", got.Code, got.Body)
	}
	clear(o.touched)
	o.watch.noRevision(revision("tiny-00001", config.Class))
	if f := one(); f.Model != "tiny-2" || len(f.Aliases) > 0 || o.touched["default/tiny"] == 0 {
		t.Errorf("without the first revision: %+v, said %d times", f, o.touched["default/tiny"])
	}
	o.watch.noRevision(revision("tiny-00002", config.Class))
	if list := o.offers.functions(); len(list) != 0 {
		t.Errorf("without revisions: %+v", list)
	}
}

// TestOffersDivideDemand: requests that wait at a front door are divided among revisions by share, and each keeps its
// revision while it waits.
func TestOffersDivideDemand(t *testing.T) {
	o := newOffering(t)
	o.watch.revision(revision("tiny-00001", config.Class))
	o.watch.revision(revision("tiny-00002", config.Class))
	o.watch.route(route(map[string]int64{"tiny-00001": 50, "tiny-00002": 50}))
	sum := func() (n int) {
		for v := range maps.Values(o.demand) {
			n += v
		}
		return n
	}
	o.wants(64)
	first := maps.Clone(o.demand)
	if sum() != 64 || first["default/tiny-00001"] == 0 || first["default/tiny-00002"] == 0 {
		t.Fatalf("%v, want 64 divided", first)
	}
	o.wants(64)
	if !maps.Equal(o.demand, first) {
		t.Errorf("said again: %v, want %v as before", o.demand, first)
	}
	o.wants(65)
	if sum() != 65 || o.demand["default/tiny-00001"] < first["default/tiny-00001"] || o.demand["default/tiny-00002"] < first["default/tiny-00002"] {
		t.Errorf("one more: %v after %v", o.demand, first)
	}
	o.watch.route(route(map[string]int64{"tiny-00002": 100}))
	o.wants(10)
	if want := map[api.FunctionName]int{"default/tiny-00001": 0, "default/tiny-00002": 10}; !maps.Equal(o.demand, want) {
		t.Errorf("without traffic for the first: %v, want %v", o.demand, want)
	}
	o.wants(0)
	if sum() != 0 || len(o.drawn) != 0 {
		t.Errorf("nothing waits: %v, kept %v", o.demand, o.drawn)
	}
}
