package knative

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestInstancesAreForgotten: with an instance's last report, with its pod, or a while after a late report.
func TestInstancesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newInstances()
		report := func(id api.InstanceID, state api.State) {
			k.learn(control.InstanceReport{Status: api.InstanceStatus{Instance: id, State: state, Endpoint: api.Endpoint("http://" + string(id))}, Token: "t-" + string(id)})
		}
		known := func(id api.InstanceID) bool {
			return !k.lastHeard(id).IsZero() || k.token(api.Endpoint("http://"+string(id))) != ""
		}
		for _, id := range []api.InstanceID{"stays", "says-so", "is-deleted", "is-late"} {
			k.pod("default/tiny-00001", id, "10.0.0.1")
			report(id, api.Awake)
		}
		report("says-so", api.Gone)
		k.noPod("default/tiny-00001", "is-deleted")
		k.noPod("default/tiny-00001", "is-late")
		report("is-late", api.Asleep)
		for id, want := range map[api.InstanceID]bool{"stays": true, "says-so": false, "is-deleted": false, "is-late": true} {
			if got := known(id); got != want {
				t.Errorf("%s is known: got %t, want %t", id, got, want)
			}
		}
		time.Sleep(2 * time.Second)
		k.sweep(time.Now().Add(-time.Second))
		if known("is-late") || !known("stays") {
			t.Errorf("after a sweep: is-late %t, stays %t; want only the one with a pod", known("is-late"), known("stays"))
		}
	})
}

// TestTheTokenHasNoLineEnd: people edit Secrets with editors, which add a newline.
func TestTheTokenHasNoLineEnd(t *testing.T) {
	token := &clusterToken{}
	secret := func(name, value string) {
		s := &corev1.Secret{Data: map[string][]byte{control.ControlSecretKey: []byte(value)}}
		s.Name = name
		token.secret(s)
	}
	secret(control.ControlSecret, "one\n")
	secret("another", "two")
	secret(control.ControlSecret, " \n")
	if got := token.current(); got != "one" {
		t.Errorf("got %q, want \"one\"", got)
	}
}
