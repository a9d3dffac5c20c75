package knative

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/rouse-dev/rouse/config"
)

// TestDispatch: which handler serves a request, and which of its headers reach an instance.
func TestDispatch(t *testing.T) {
	seen := ""
	rig := newRig(t, func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		seen = fmt.Sprintf("%s %s host %s revision %q forwarded %s", r.URL.Host, r.URL.Path, r.Host, r.Header.Get("Knative-Serving-Revision"), r.Header.Get("Forwarded"))
		return answer(200, "instance")
	})
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, rev := range []*v1.Revision{revision("ours", config.Class), revision("new", config.Class), revision("theirs", "kpa.autoscaling.knative.dev")} {
		if err := indexer.Add(rev); err != nil {
			t.Fatal(err)
		}
	}
	rig.watch.revision(revision("ours", config.Class))
	rig.core.ObserveInstance(awake("ours", "ours-a", "10.0.0.1"))
	rig.core.ObserveInstance(awake("new", "new-a", "10.0.0.2"))
	says := func(who string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, who+": "+r.Header.Get("Knative-Serving-Revision"))
		})
	}
	d := &dispatcher{core: rig.core, front: says("front"), stock: says("stock"), isOurs: rig.watch.isOurs, lookup: revisionLookup(servinglisters.NewRevisionLister(indexer)), tell: rig.watch.revision, named: rig.watch.services.elsewhere, domain: "cluster.local"}
	for _, tc := range []struct {
		name, host, revision, namespace, path string
		want                                  string
		instance                              string
	}{
		{"ours by header", "tiny.default.example.com", "ours", "default", "/v1/chat/completions", "instance", `10.0.0.1:9000 /v1/chat/completions host tiny.default.example.com revision "" forwarded for=1.2.3.4`},
		{"any path", "tiny.default.example.com", "ours", "default", "/x/y", "instance", `10.0.0.1:9000 /x/y host tiny.default.example.com revision "" forwarded for=1.2.3.4`},
		{"ours by host", "ours.default.svc.cluster.local:80", "", "", "/x", "instance", `10.0.0.1:9000 /x host ours.default.svc.cluster.local:80 revision "" forwarded for=1.2.3.4`},
		{"half a header", "ours.default.svc.cluster.local", "theirs", "", "/x", "instance", `10.0.0.1:9000 /x host ours.default.svc.cluster.local revision "" forwarded for=1.2.3.4`},
		{"news that have not come", "h", "new", "default", "/x", "instance", `10.0.0.2:9000 /x host h revision "" forwarded for=1.2.3.4`},
		{"control paths are closed", "h", "ours", "default", "/rouse/v1/sleep", "unknown_path", ""},
		{"theirs by header", "h", "theirs", "default", "/x", "stock: theirs", ""},
		{"theirs by host", "theirs.default.svc.cluster.local", "", "", "/x", "stock", ""},
		{"nobody's by header", "h", "nobody", "default", "/x", "stock: nobody", ""},
		{"the front door's Service", "rouse.knative-serving.svc.cluster.local", "", "", "/x", "front", ""},
		{"its headers from outside", "rouse.knative-serving.svc.cluster.local:80", "theirs", "default", "/x", "front: ", ""},
		{"its headers for one of ours", "rouse.knative-serving.svc.cluster.local", "ours", "default", "/x", "front: ", ""},
		{"no revision's host", "a.b.c.svc.cluster.local", "", "", "/x", "front", ""},
		{"any host", "models.example.com", "", "", "/x", "front", ""},
		{"an address", "[::1]:8012", "", "", "/x", "front", ""},
	} {
		seen = ""
		r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader("{}"))
		r.Host = tc.host
		r.Header.Set("Forwarded", "for=1.2.3.4")
		if tc.revision != "" {
			r.Header.Set("Knative-Serving-Revision", tc.revision)
		}
		if tc.namespace != "" {
			r.Header.Set("Knative-Serving-Namespace", tc.namespace)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if got := w.Body.String(); !strings.Contains(got, tc.want) || strings.HasSuffix(tc.want, ": ") && got != tc.want || seen != tc.instance {
			t.Errorf("%s: got %q and the instance saw %q, want %q and %q", tc.name, w.Body, seen, tc.want, tc.instance)
		}
	}
}
