package knative

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	stockactivator "knative.dev/serving/pkg/activator"
	v1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// dispatcher serves a request:
//
//  1. To the front door's own host, as a DomainMapping writes it: at the front door, whatever its headers. They
//     came from outside, and would open every revision.
//  2. For a known function: ours.
//  3. For one that informers have not reported yet: ours, after tell.
//  4. For another revision, or a missing one in headers: Knative's.
//  5. Otherwise at the front door.
type dispatcher struct {
	core   *activator.Activator
	front  http.Handler
	stock  http.Handler
	isOurs func(*v1.Revision) bool
	lookup func(namespace, name string) (*v1.Revision, error)
	tell   func(*v1.Revision)
	named  func(api.FunctionName) api.FunctionName // itself, or its Service if that runs elsewhere
	domain string                                  // such as cluster.local
}

func (d *dispatcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, named := d.byHost(r)
	if named && id == frontDoor { // 1
		clean(r)
		d.front.ServeHTTP(w, r)
		return
	}
	if said, found := d.byHeader(r); found {
		id, named = said, true
	}
	if !named {
		d.front.ServeHTTP(w, r)
		return
	}
	name := api.FunctionName(id.Namespace + "/" + id.Name)
	if known := d.named(name); d.core.Declared(known) { // 2
		d.ours(w, r, known)
		return
	}
	rev, err := d.lookup(id.Namespace, id.Name)
	switch {
	case err == nil && d.isOurs(rev): // 3
		d.tell(rev)
		d.ours(w, r, d.named(name))
	case err == nil || r.Header.Get(stockactivator.RevisionHeaderName) != "": // 4
		d.stock.ServeHTTP(w, r)
	default: // 5
		d.front.ServeHTTP(w, r)
	}
}

func (d *dispatcher) ours(w http.ResponseWriter, r *http.Request, name api.FunctionName) {
	clean(r)
	d.core.ServeFunction(w, r, name)
}

// clean removes headers that are between an ingress and an activator.
func clean(r *http.Request) {
	for _, h := range stockactivator.RevisionHeaders {
		r.Header.Del(h)
	}
}

var frontDoor = types.NamespacedName{Namespace: control.SystemNamespace, Name: control.FrontDoorName}

func (d *dispatcher) byHeader(r *http.Request) (types.NamespacedName, bool) {
	id := types.NamespacedName{Namespace: r.Header.Get(stockactivator.RevisionHeaderNamespace), Name: r.Header.Get(stockactivator.RevisionHeaderName)}
	return id, id.Namespace != "" && id.Name != ""
}

// byHost returns the name in a host NAME.NAMESPACE.svc.DOMAIN.
func (d *dispatcher) byHost(r *http.Request) (types.NamespacedName, bool) {
	host, _, _ := strings.Cut(r.Host, ":")
	rest, found := strings.CutSuffix(host, ".svc."+d.domain)
	if !found {
		return types.NamespacedName{}, false
	}
	name, namespace, found := strings.Cut(rest, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, found && !strings.Contains(namespace, ".")
}
