package knative

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// TestClientKeys changes the Secret in every way, and checks which clients are admitted.
func TestClientKeys(t *testing.T) {
	key, hash := apikey.New()
	k := clientKeys{store: keys.NewStore(nil), log: slog.New(slog.DiscardHandler)}
	letIn := func() bool {
		r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		_, err := k.store.Authenticate(r)
		return err == nil
	}
	secret := func(name, text string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if text != "" {
			s.Data = map[string][]byte{control.KeysSecretKey: []byte(text)}
		}
		return s
	}
	valid := "keys: [{name: a, hash: " + hash + "}]"
	h := on(k.secret, k.deleted)
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing was read", func() {}, false},
		{"a Secret of others", func() { h.OnAdd(secret("other", valid), true) }, false},
		{"the Secret as it is installed", func() { h.OnAdd(secret(control.KeysSecret, ""), true) }, false},
		{"a key more", func() { h.OnUpdate(nil, secret(control.KeysSecret, valid)) }, true},
		{"a text that is wrong", func() { h.OnUpdate(nil, secret(control.KeysSecret, "keys: 7")) }, true},
		{"all entries taken out", func() { h.OnUpdate(nil, secret(control.KeysSecret, "")) }, false},
		{"the key again", func() { h.OnUpdate(nil, secret(control.KeysSecret, valid)) }, true},
		{"another Secret deleted", func() { h.OnDelete(secret("other", "")) }, true},
		{"the Secret deleted", func() { h.OnDelete(secret(control.KeysSecret, valid)) }, false},
	} {
		step.do()
		if got := letIn(); got != step.want {
			t.Errorf("%s: the key is let in: %v, want %v", step.name, got, step.want)
		}
	}
}
