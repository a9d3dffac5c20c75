package inject

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// hostile are registries in memory: what they have, by path. Those whose host begins with "slow" never answer.
type hostile struct {
	has   map[string]io.Reader
	hangs atomic.Int64 // requests that hang now
}

// RoundTrip implements [http.RoundTripper].
func (h *hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, ContentLength: -1, Body: http.NoBody}
	if r.URL.Path == "/v2/" {
		return resp, nil
	}
	if strings.HasPrefix(r.URL.Host, "slow") {
		h.hangs.Add(1)
		defer h.hangs.Add(-1)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, found := h.has[r.URL.Path]
	if !found {
		resp.StatusCode = http.StatusNotFound
		return resp, nil
	}
	resp.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	resp.Body = io.NopCloser(body)
	return resp, nil
}

func digestOf(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// image puts an image with a configuration into a registry.
func (h *hostile) image(config []byte) string {
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":%d,"digest":%q},"layers":[]}`, len(config), digestOf(config))
	h.has["/v2/mine/manifests/"+digestOf(manifest)] = bytes.NewReader(manifest)
	h.has["/v2/mine/blobs/"+digestOf(config)] = bytes.NewReader(config)
	return "good.example/mine@" + digestOf(manifest)
}

// endless counts what is read of it.
type endless struct{ n int64 }

// Read implements [io.Reader].
func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.n += int64(len(p))
	return len(p), nil
}

// TestAnImageWithoutEnd: of what a registry sends at most 1 MiB is read, whatever it is, and little of it is decoded.
func TestAnImageWithoutEnd(t *testing.T) {
	t.Parallel()
	h := &hostile{has: map[string]io.Reader{}}
	all := newImages(fake.NewClientset(), h)
	read := func(image string) error {
		_, err := all.of(&corev1.Pod{}, "a")(t.Context(), image)
		return err
	}
	if err := read(h.image([]byte(`{"config":{"Entrypoint":["/x"]},"history":[` + strings.Repeat(`{},`, 100_000) + `{}]}`))); err != nil {
		t.Errorf("an image with a long history: %v", err)
	}
	long := h.image([]byte(`{"config":{"Entrypoint":["/x"` + strings.Repeat(`,""`, 100_000) + `]}}`))
	if err := read(long); err == nil || !strings.Contains(err.Error(), "want at most 65536") {
		t.Errorf("an entrypoint without end: %v", err)
	}
	config := h.image([]byte("{}"))
	blob := &endless{}
	h.has["/v2/mine/blobs/"+digestOf([]byte("{}"))] = blob
	manifest := &endless{}
	other := "good.example/mine@" + digestOf([]byte("x"))
	h.has["/v2/mine/manifests/"+digestOf([]byte("x"))] = manifest
	for image, from := range map[string]*endless{config: blob, other: manifest} {
		if err := read(image); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
			t.Errorf("an answer without end: %v", err)
		}
		if from.n > 2<<20 {
			t.Errorf("%d bytes were read of an answer without end", from.n)
		}
	}
}

// TestSlowRegistries: who has many images of registries that don't answer reads few at once, and delays nobody else.
func TestSlowRegistries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hostile{has: map[string]io.Reader{}}
		good := h.image([]byte(`{"config":{"Entrypoint":["/x"]}}`))
		all := newImages(fake.NewClientset(), h)
		var waiting sync.WaitGroup
		var busy atomic.Int64
		slow := func(namespace string, n int) {
			waiting.Go(func() {
				_, err := all.of(&corev1.Pod{}, namespace)(t.Context(), fmt.Sprintf("slow.example/mine@sha256:%064d", n))
				if err == nil {
					t.Error("an image was read that nobody sends")
				}
				if errors.Is(err, errBusy) {
					busy.Add(1)
				}
			})
		}
		for n := range 100 {
			slow("a", n)
			slow("a", n) // another pod of the image
		}
		synctest.Wait()
		if n := h.hangs.Load(); n == 0 || n > mostOwn {
			t.Errorf("%d requests of one namespace at once, want at most %d", n, mostOwn)
		}
		if n := busy.Load(); n < 2*(100-mostOwn-mostWaiting) {
			t.Errorf("%d of 200 pods were told that it is busy", n)
		}
		begun := time.Now()
		if config, err := all.of(&corev1.Pod{}, "b")(t.Context(), good); err != nil || config.Entrypoint[0] != "/x" || time.Since(begun) > 0 {
			t.Errorf("another namespace: %+v, %v after %s", config, err, time.Since(begun))
		}
		for n := range 100 {
			slow(fmt.Sprint("namespace-", n), n)
		}
		synctest.Wait()
		if n := h.hangs.Load(); n > mostReads {
			t.Errorf("%d requests at once, want at most %d", n, mostReads)
		}
		waiting.Wait()
		if len(all.namespaces) != 0 || len(all.places) != 0 {
			t.Errorf("%d namespaces and %d places are kept of reads that have ended", len(all.namespaces), len(all.places))
		}
	})
}
