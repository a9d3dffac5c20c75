package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// readWithin bounds reading an image's configuration: the API server waits for it.
	readWithin = 6 * time.Second
	// failedFor is how long a failure to read is remembered.
	failedFor = 15 * time.Second
	// mostImages bounds the cache.
	mostImages = 1000
)

// images reads what images say of themselves, from their registries, and remembers it by digest.
type images struct {
	kube      kubernetes.Interface
	transport http.RoundTripper

	mu   sync.Mutex // guards read
	read map[string]known
}

// known is what was found out of one image, or why nothing was.
type known struct {
	config *v1.Config
	err    error
	until  time.Time // zero: for good, a digest means one image
}

func newImages(kube kubernetes.Interface, transport http.RoundTripper) *images {
	return &images{kube: kube, transport: transport, read: map[string]known{}}
}

// of reads the configuration of an image, with the Secrets that the pod pulls its images by.
func (i *images) of(pod *corev1.Pod, namespace string) reader {
	return func(ctx context.Context, text string) (*v1.Config, error) {
		ref, err := name.NewDigest(text)
		if err != nil {
			return nil, fmt.Errorf("what the image %s starts can't be read: %w", text, errNoDigest)
		}
		key := namespace + " " + ref.String() // what one namespace may read is not another's to know
		if k, found := i.cached(key); found {
			return k.config, k.err
		}
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		k := known{}
		k.config, k.err = i.fetch(ctx, ref, pod, namespace)
		if k.err != nil {
			k.err, k.until = fmt.Errorf("what the image %s starts can't be read: %w", text, k.err), time.Now().Add(failedFor)
		}
		i.keep(key, k)
		return k.config, k.err
	}
}

func (i *images) cached(key string) (known, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, found := i.read[key]
	if found && !k.until.IsZero() && time.Now().After(k.until) {
		delete(i.read, key)
		return known{}, false
	}
	return k, found
}

func (i *images) keep(key string, k known) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for old := range i.read {
		if len(i.read) < mostImages {
			break
		}
		delete(i.read, old) // any: it is read again where it is wanted
	}
	i.read[key] = k
}

// fetch reads an image's configuration; of one for several architectures, that for ours, or any for Linux.
func (i *images) fetch(ctx context.Context, ref name.Digest, pod *corev1.Pod, namespace string) (*v1.Config, error) {
	keys, err := i.keychain(ctx, pod, namespace)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(i.transport), remote.WithAuthFromKeychain(keys), remote.WithUserAgent("rouse-injector")}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	var img v1.Image
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return nil, err
		}
		if img, err = ofIndex(index); err != nil {
			return nil, err
		}
	} else if img, err = found.Image(); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return &file.Config, nil
}

func ofIndex(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	fits := func(arch string) int {
		return slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool {
			return d.MediaType.IsImage() && d.Platform != nil && d.Platform.OS == "linux" && (arch == "" || d.Platform.Architecture == arch)
		})
	}
	k := fits(runtime.GOARCH)
	if k < 0 {
		k = fits("")
	}
	if k < 0 {
		return nil, errors.New("there is none for Linux")
	}
	return index.Image(manifest.Manifests[k].Digest)
}

// keychain has the credentials of the Secrets that the pod pulls its images by.
func (i *images) keychain(ctx context.Context, pod *corev1.Pod, namespace string) (authn.Keychain, error) {
	var keys credentials
	for _, s := range pod.Spec.ImagePullSecrets {
		secret, err := i.kube.CoreV1().Secrets(namespace).Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("the injector may not read the Secret %[2]s. Allow it: `kubectl -n %[1]s create role rouse-pull --verb=get --resource=secrets --resource-name=%[2]s` and `kubectl -n %[1]s create rolebinding rouse-pull --role=rouse-pull --serviceaccount=knative-serving:rouse-injector`", namespace, s.Name)
		case apierrors.IsNotFound(err): // the kubelet goes on without it too
		case err != nil:
			return nil, fmt.Errorf("read the Secret %s: %w", s.Name, err)
		default:
			keys.add(secret)
		}
	}
	return keys, nil
}

// credentials are those of registries, by their hosts or the beginnings of their repositories.
type credentials map[string]authn.AuthConfig

func (c *credentials) add(s *corev1.Secret) {
	raw := s.Data[corev1.DockerConfigKey]
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if whole := s.Data[corev1.DockerConfigJsonKey]; whole != nil {
		_ = json.Unmarshal(whole, &file) // what is no such file has no credentials
	} else {
		_ = json.Unmarshal(raw, &file.Auths)
	}
	if *c == nil {
		*c = credentials{}
	}
	for host, auth := range file.Auths {
		host = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://"), "/")
		host = strings.TrimSuffix(strings.TrimSuffix(host, "/v1"), "/v2")
		(*c)[host] = auth
	}
}

// Resolve finds the credential for the longest beginning of a repository's name.
func (c credentials) Resolve(r authn.Resource) (authn.Authenticator, error) {
	for at := r.String(); at != ""; {
		if auth, found := c[at]; found {
			return authn.FromConfig(auth), nil
		}
		k := strings.LastIndexByte(at, '/')
		if k < 0 {
			break
		}
		at = at[:k]
	}
	if r.RegistryStr() == name.DefaultRegistry { // which Docker writes otherwise
		for _, host := range []string{"docker.io", "registry-1.docker.io"} {
			if auth, found := c[host]; found {
				return authn.FromConfig(auth), nil
			}
		}
	}
	return authn.Anonymous, nil
}
