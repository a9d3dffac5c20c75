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

// dispatcher sends a request to the front door, our activator or Knative's:
//
//  1. Its host is the front door's own, as a DomainMapping writes it: the front door, whatever its headers are. They
//     came from outside, and would open every revision.
//  2. It names a revision that our activator knows: ours.
//  3. It names one of our class that the informers have not reported yet: ours, after tell.
//  4. It names another revision, or its headers a missing one: Knative's.
//  5. Otherwise the front door.
type dispatcher struct {
	core   *activator.Activator
	front  http.Handler
	stock  http.Handler
	isOurs func(*v1.Revision) bool
	lookup func(namespace, name string) (*v1.Revision, error)
	tell   func(*v1.Revision)                      // tells the activator of a revision
	named  func(api.FunctionName) api.FunctionName // the function for a revision's requests: itself, or its Service if that runs elsewhere
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

// clean removes the headers between an ingress and an activator.
func clean(r *http.Request) {
	for _, h := range stockactivator.RevisionHeaders {
		r.Header.Del(h)
	}
}

// frontDoor is the front door's Service.
var frontDoor = types.NamespacedName{Namespace: control.SystemNamespace, Name: control.FrontDoorName}

// byHeader returns the revision in the ingress's headers.
func (d *dispatcher) byHeader(r *http.Request) (types.NamespacedName, bool) {
	id := types.NamespacedName{Namespace: r.Header.Get(stockactivator.RevisionHeaderNamespace), Name: r.Header.Get(stockactivator.RevisionHeaderName)}
	return id, id.Namespace != "" && id.Name != ""
}

// byHost returns the name in a host REVISION.NAMESPACE.svc.DOMAIN: a revision's, or another Service's.
func (d *dispatcher) byHost(r *http.Request) (types.NamespacedName, bool) {
	host, _, _ := strings.Cut(r.Host, ":")
	rest, found := strings.CutSuffix(host, ".svc."+d.domain)
	if !found {
		return types.NamespacedName{}, false
	}
	name, namespace, found := strings.Cut(rest, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, found && !strings.Contains(namespace, ".")
}
