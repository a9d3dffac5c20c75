package inject

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	made "github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// private is a registry that wants a password, with an image of two architectures, and counts requests.
func private(t *testing.T) (image string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var index v1.ImageIndex = empty.Index
	for _, arch := range []string{"riscv64", "amd64", "arm64"} {
		img, err := made.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, Config: v1.Config{Entrypoint: []string{"/" + arch}}})
		if err != nil {
			t.Fatal(err)
		}
		index = made.AppendManifests(index, made.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/mine/image:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuth(&authn.Basic{Username: "me", Password: "secret"})); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return tag.Context().Digest(digest.String()).String(), asked
}

func pullSecret(host string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"https://` + host + `/v1/":{"auth":"bWU6c2VjcmV0"}}}`)}} // me:secret
}

func TestAnImageIsReadOnceWithTheSecretsOfItsPod(t *testing.T) {
	image, asked := private(t)
	host, _, _ := strings.Cut(image, "/")
	kube := fake.NewClientset(pullSecret(host))
	all := newImages(kube, http.DefaultTransport)
	pod := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "absent"}, {Name: "pull"}}}}
	config, err := all.of(pod, "a")(t.Context(), image)
	if err != nil || len(config.Entrypoint) != 1 || config.Entrypoint[0] == "/riscv64" {
		t.Fatalf("got %+v (%v), want the entrypoint for this architecture", config, err)
	}
	before := asked.Load()
	if _, err := all.of(pod, "a")(t.Context(), image); err != nil || asked.Load() != before {
		t.Errorf("the second time the registry was asked %d times more (%v)", asked.Load()-before, err)
	}
	// Another namespace has no such Secret, and does not learn what is in the image.
	if _, err := all.of(pod, "b")(t.Context(), image); err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("another namespace: %v, want that it can't be read", err)
	}
}

func TestASecretThatMayNotBeRead(t *testing.T) {
	image, _ := private(t)
	kube := fake.NewClientset()
	kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "pull", errors.New("no"))
	})
	pod := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}}
	_, err := newImages(kube, http.DefaultTransport).of(pod, "a")(t.Context(), image)
	if err == nil || !strings.Contains(err.Error(), "kubectl -n a create role rouse-pull --verb=get --resource=secrets --resource-name=pull") {
		t.Errorf("got %v, want the command that allows it", err)
	}
}

func TestAnImageWithoutADigestIsNotAskedFor(t *testing.T) {
	_, err := newImages(fake.NewClientset(), http.DefaultTransport).of(&corev1.Pod{}, "a")(t.Context(), "dev.local/mine:v1")
	if !errors.Is(err, errNoDigest) {
		t.Errorf("got %v, want %v", err, errNoDigest)
	}
}
