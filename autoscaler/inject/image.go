package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

const (
	// readWithin: the API server waits for it.
	readWithin = 6 * time.Second
	failedFor  = 15 * time.Second
	mostImages = 1000
	// mostAnswer bounds each answer; mostDecoded, the part of it that is decoded.
	mostAnswer  = 1 << 20
	mostDecoded = 64 << 10
	// mostReads bounds all concurrent reads, mostOwn those of a namespace, mostWaiting those of it that wait, too.
	mostReads   = 16
	mostOwn     = 2
	mostWaiting = 16
)

var errBusy = errors.New("too many images are being read: it is tried again with the next pod")

// images reads and caches configurations.
type images struct {
	kube      kubernetes.Interface
	transport http.RoundTripper

	reads  singleflight.Group
	places chan struct{} // semaphore of mostReads; filled by readers

	mu         sync.Mutex // guards all below
	read       map[string]known
	namespaces map[string]*reading
}

type reading struct {
	places chan struct{} // semaphore of mostOwn; filled by readers and those that wait for others
	n      int           // readers and waiters
}

type known struct {
	config *v1.Config
	err    error
	until  time.Time // zero: for ever
}

func newImages(kube kubernetes.Interface, transport http.RoundTripper) *images {
	return &images{kube: kube, transport: transport, places: make(chan struct{}, mostReads), read: map[string]known{}, namespaces: map[string]*reading{}}
}

func (i *images) of(pod *corev1.Pod, namespace string) reader {
	return func(ctx context.Context, text string) (*v1.Config, error) {
		ref, err := name.NewDigest(text)
		if err != nil {
			return nil, fmt.Errorf("what the image %s starts can't be read: %w", text, errNoDigest)
		}
		key := namespace + " " + ref.String() // another namespace may not be allowed to read it
		if k, found := i.cached(key); found {
			return k.config, k.err
		}
		config, err, _ := i.reads.Do(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin) // others may wait for it
			defer cancel()
			leave, err := i.enter(ctx, namespace)
			if err != nil {
				return (*v1.Config)(nil), fmt.Errorf("what the image %s starts was not read: %w", text, err)
			}
			defer leave()
			k := known{}
			k.config, k.err = i.fetch(ctx, ref, pod, namespace)
			if k.err != nil {
				k.err, k.until = fmt.Errorf("what the image %s starts can't be read: %w", text, k.err), time.Now().Add(failedFor)
			}
			i.keep(key, k)
			return k.config, k.err
		})
		return config.(*v1.Config), err
	}
}

// enter waits for permission to read; leave returns it. The error is errBusy.
func (i *images) enter(ctx context.Context, namespace string) (leave func(), err error) {
	i.mu.Lock()
	own := i.namespaces[namespace]
	if own == nil {
		own = &reading{places: make(chan struct{}, mostOwn)}
		i.namespaces[namespace] = own
	}
	if own.n >= mostOwn+mostWaiting {
		i.mu.Unlock()
		return nil, errBusy
	}
	own.n++
	i.mu.Unlock()
	var taken []chan struct{}
	leave = func() {
		for _, places := range taken {
			<-places
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		if own.n--; own.n == 0 {
			delete(i.namespaces, namespace)
		}
	}
	for _, places := range []chan struct{}{own.places, i.places} {
		select {
		case places <- struct{}{}:
			taken = append(taken, places)
		case <-ctx.Done():
			leave()
			return nil, errBusy
		}
	}
	return leave, nil
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
		delete(i.read, old) // any one
	}
	i.read[key] = k
}

// fetch reads an image's configuration; of several the one for our architecture, or any for Linux.
func (i *images) fetch(ctx context.Context, ref name.Digest, pod *corev1.Pod, namespace string) (*v1.Config, error) {
	keys, err := i.keychain(ctx, pod, namespace)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(localhttp.Limit{From: i.transport, Bytes: mostAnswer}), remote.WithAuthFromKeychain(keys), remote.WithUserAgent("rouse-injector")}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	if found.MediaType.IsIndex() {
		digest, err := ofIndex(found.Manifest)
		if err != nil {
			return nil, err
		}
		if found, err = remote.Get(ref.Context().Digest(digest.String()), options...); err != nil {
			return nil, err
		}
	}
	var manifest struct {
		Config struct {
			Digest v1.Hash `json:"digest"`
		} `json:"config"`
	}
	if err := json.Unmarshal(found.Manifest, &manifest); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	blob, err := remote.Layer(ref.Context().Digest(manifest.Config.Digest.String()), options...)
	if err != nil {
		return nil, err
	}
	text, err := blob.Compressed()
	if err != nil {
		return nil, err
	}
	defer text.Close()
	raw, err := io.ReadAll(text)
	if err != nil {
		return nil, err
	}
	var file struct {
		Config part `json:"config"`
	}
	var all v1.Config
	if err := errors.Join(json.Unmarshal(raw, &file), file.Config.decode(&all)); err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	config := &v1.Config{Entrypoint: all.Entrypoint, Cmd: all.Cmd, StopSignal: all.StopSignal}
	if all.Labels[labelFunction] == "true" {
		config.Labels = map[string]string{labelFunction: "true"}
	}
	return config, nil
}

// part is decoded only if small: decoding may multiply its size.
type part json.RawMessage

func (p *part) UnmarshalJSON(text []byte) error {
	if len(text) > mostDecoded {
		return fmt.Errorf("a part of it has %d bytes, want at most %d", len(text), mostDecoded)
	}
	*p = slices.Clone(text)
	return nil
}

func (p part) decode(into any) error {
	if p == nil {
		return nil
	}
	return json.Unmarshal(p, into)
}

func ofIndex(text []byte) (digest v1.Hash, err error) {
	var index struct {
		Manifests part `json:"manifests"`
	}
	var manifests []v1.Descriptor
	if err := errors.Join(json.Unmarshal(text, &index), index.Manifests.decode(&manifests)); err != nil {
		return digest, fmt.Errorf("its index: %w", err)
	}
	fits := func(arch string) int {
		return slices.IndexFunc(manifests, func(d v1.Descriptor) bool {
			return d.MediaType.IsImage() && d.Platform != nil && d.Platform.OS == "linux" && (arch == "" || d.Platform.Architecture == arch)
		})
	}
	k := fits(runtime.GOARCH)
	if k < 0 {
		k = fits("")
	}
	if k < 0 {
		return digest, errors.New("there is none for Linux")
	}
	return manifests[k].Digest, nil
}

func (i *images) keychain(ctx context.Context, pod *corev1.Pod, namespace string) (authn.Keychain, error) {
	var keys credentials
	for _, s := range pod.Spec.ImagePullSecrets {
		secret, err := i.kube.CoreV1().Secrets(namespace).Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("the injector may not read the Secret %[2]s. Allow it: `kubectl -n %[1]s create role rouse-pull --verb=get --resource=secrets --resource-name=%[2]s` and `kubectl -n %[1]s create rolebinding rouse-pull --role=rouse-pull --serviceaccount=knative-serving:rouse-injector`", namespace, s.Name)
		case apierrors.IsNotFound(err): // the kubelet continues without it, too
		case err != nil:
			return nil, fmt.Errorf("read the Secret %s: %w", s.Name, err)
		default:
			keys.add(secret)
		}
	}
	return keys, nil
}

// credentials are by host or by prefix of a repository's name.
type credentials map[string]authn.AuthConfig

func (c *credentials) add(s *corev1.Secret) {
	raw := s.Data[corev1.DockerConfigKey]
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if whole := s.Data[corev1.DockerConfigJsonKey]; whole != nil {
		_ = json.Unmarshal(whole, &file) // an invalid file has no credentials
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

// Resolve returns the credential for the longest prefix.
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
	if r.RegistryStr() == name.DefaultRegistry { // Docker uses other names for it
		for _, host := range []string{"docker.io", "registry-1.docker.io"} {
			if auth, found := c[host]; found {
				return authn.FromConfig(auth), nil
			}
		}
	}
	return authn.Anonymous, nil
}
