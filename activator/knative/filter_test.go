package knative

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/rouse-dev/rouse/api"
)

// TestFilteredInformer: Knative's parts hear of Endpoints of their own revisions, and of those of none.
func TestFilteredInformer(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, rev := range []*v1.Revision{revision("ours", api.Class), revision("theirs", "kpa.autoscaling.knative.dev")} {
		if err := indexer.Add(rev); err != nil {
			t.Fatal(err)
		}
	}
	endpoints := func(name, revision string) *corev1.Endpoints { //nolint:staticcheck // Knative's activator watches Endpoints
		return &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{serving.RevisionLabelKey: revision}}} //nolint:staticcheck // as above
	}
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(endpoints("a", "ours"), endpoints("b", "theirs"), endpoints("c", "nobody"), endpoints("d", "")), 0)
	informer := filteredEndpoints{factory.Core().V1().Endpoints(), revisionLookup(servinglisters.NewRevisionLister(indexer))}.Informer()
	heard := make(chan string, 4) // one for each that there is
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { heard <- o.(metav1.Object).GetName() }})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), registered.HasSynced) {
		t.Fatal("no state")
	}
	close(heard)
	var got []string
	for name := range heard {
		got = append(got, name)
	}
	slices.Sort(got)
	if want := []string{"b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("heard of %q, want %q", got, want)
	}
}
