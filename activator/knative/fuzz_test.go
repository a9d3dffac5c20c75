package knative

import (
	"testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// FuzzOrders sends any body to any control path: nothing panics, and it is carried out or refused as the sender's
// error.
func FuzzOrders(f *testing.F) {
	paths := []string{control.PathGrants, control.PathRevoke, control.PathFail, control.PathInstances}
	for k, body := range []string{
		`{"instance":"a","function":"default/tiny-00001","epoch":1,"expires":"2100-01-01T00:00:00Z"}`, `{"instance":"a","function":"default/tiny-00001","epoch":18446744073709551615}`,
		`{"function":"default/tiny-00001","status":503,"retryAfter":-1}`, `{"status":{"instance":"a","function":"default/tiny-00001","state":"asleep","level":9,"endpoint":"::","seq":1},"token":"t\n"}`,
	} {
		f.Add(k, []byte(body))
	}
	f.Add(3, []byte(`{"status":{"instance":"a","function":"/","state":"awake","endpoint":"http://%zz","concurrency":-5}}`))
	f.Fuzz(func(t *testing.T, path int, body []byte) {
		g := newRig(t, host)
		g.watch.revision(revision("tiny-00001", config.Class))
		token, value := &clusterToken{}, "the cluster's"
		token.value.Store(&value)
		h := (&controls{core: g.core, instances: g.instances, observe: g.core.ObserveInstance, failed: g.core.Fail, token: token}).handler()
		if w := order(h, "POST", paths[uint(path)%uint(len(paths))], value, string(body)); w.Code != 204 && w.Code/100 != 4 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		g.core.Stats(function)
	})
}
