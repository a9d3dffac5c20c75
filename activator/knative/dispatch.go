package knative

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	stockactivator "knative.dev/serving/pkg/activator"
	v1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
)

// dispatcher sends a request to the front door, to our activator or to Knative's:
//
//  1. It names a revision that our activator knows: ours.
//  2. It names one of our class that the activator does not know yet, because the
//     news of it has only come: ours, after the activator was told.
//  3. It names another revision, or by its headers one that there is not: Knative's.
//  4. Otherwise it is the front door's.
type dispatcher struct {
	core   *activator.Activator
	front  http.Handler
	stock  http.Handler
	lookup func(namespace, name string) (*v1.Revision, error)
	tell   func(*v1.Revision) // the activator, of a revision of our class
	domain string             // the cluster's, such as cluster.local
}

func (d *dispatcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, named := d.byHeader(r)
	if !named {
		id, named = d.byHost(r)
		if !named {
			d.front.ServeHTTP(w, r)
			return
		}
	}
	name := api.FunctionName(id.Namespace + "/" + id.Name)
	if d.core.Declared(name) { // 1
		d.ours(w, r, name)
		return
	}
	rev, err := d.lookup(id.Namespace, id.Name)
	switch {
	case err == nil && isOurs(rev): // 2
		d.tell(rev)
		d.ours(w, r, name)
	case err == nil || r.Header.Get(stockactivator.RevisionHeaderName) != "": // 3
		d.stock.ServeHTTP(w, r)
	default: // 4
		d.front.ServeHTTP(w, r)
	}
}

// ours serves a request for one of our revisions. What the ingress wrote into the
// header for the activator ends here.
func (d *dispatcher) ours(w http.ResponseWriter, r *http.Request, name api.FunctionName) {
	for _, h := range stockactivator.RevisionHeaders {
		r.Header.Del(h)
	}
	d.core.ServeFunction(w, r, name)
}

// byHeader is the revision that the ingress wrote into the header. A header without the other says nothing.
func (d *dispatcher) byHeader(r *http.Request) (types.NamespacedName, bool) {
	id := types.NamespacedName{Namespace: r.Header.Get(stockactivator.RevisionHeaderNamespace), Name: r.Header.Get(stockactivator.RevisionHeaderName)}
	return id, id.Namespace != "" && id.Name != ""
}

// byHost is what a host REVISION.NAMESPACE.svc.DOMAIN names: a revision, or any other Service.
func (d *dispatcher) byHost(r *http.Request) (types.NamespacedName, bool) {
	host, _, _ := strings.Cut(r.Host, ":")
	rest, found := strings.CutSuffix(host, ".svc."+d.domain)
	if !found {
		return types.NamespacedName{}, false
	}
	name, namespace, found := strings.Cut(rest, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, found && !strings.Contains(namespace, ".")
}

// isOurs says whether a revision is of our class.
func isOurs(rev *v1.Revision) bool { return rev.Annotations[api.AnnotationClass] == api.Class }
