package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	networking "knative.dev/networking/pkg/apis/networking/v1alpha1"
)

// front is a proxy that leads from the host "a" to the service default/s, whose
// only port has the given addresses.
func front(t *testing.T, path networking.HTTPIngressPath, addrs ...string) *httptest.Server {
	t.Helper()
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	endpoints := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	at := meta.ObjectMeta{Namespace: "default", Name: "s"}
	e := &core.Endpoints{ObjectMeta: at}
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		e.Subsets = append(e.Subsets, core.EndpointSubset{
			Addresses: []core.EndpointAddress{{IP: host}}, Ports: []core.EndpointPort{{Port: int32(n)}},
		})
	}
	for _, err := range []error{
		services.Add(&core.Service{ObjectMeta: at, Spec: core.ServiceSpec{Ports: []core.ServicePort{{Port: 80}}}}),
		endpoints.Add(e),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var routes atomic.Pointer[table]
	all := newTable([]*networking.Ingress{ingress(rule("", "a", path))})
	routes.Store(&all)
	b := backends{services: corelisters.NewServiceLister(services), endpoints: corelisters.NewEndpointsLister(endpoints)}
	server := httptest.NewServer(newProxy(&routes, b, true, slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	return server
}

// post sends a body to a host through the proxy.
func post(t *testing.T, front *httptest.Server, host, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := front.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(got))
}

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, r.Host+" "+r.Header.Get("Knative-Serving-Revision")+" "+string(body))
	}))
	t.Cleanup(echo.Close)
	live := echo.Listener.Addr().String()

	plain, rewritten := to("s"), to("s")
	plain.Splits[0].AppendHeaders = map[string]string{"Knative-Serving-Revision": "s-00001"}
	rewritten.RewriteHost = "other"
	tests := []struct {
		name   string
		path   networking.HTTPIngressPath
		addrs  []string
		host   string
		status int
		want   string
	}{
		{name: "passes on", path: plain, addrs: []string{live}, host: "a", status: 200, want: "a s-00001 text"},
		{name: "rewrites the host", path: rewritten, addrs: []string{live}, host: "a", status: 200, want: "other  text"},
		{name: "tries another address", path: plain, addrs: []string{nobody(t), nobody(t), live}, host: "a", status: 200, want: "a s-00001 text"},
		{name: "nobody's host", path: plain, addrs: []string{live}, host: "b", status: 404, want: "no route leads from b"},
		{name: "no endpoints", path: plain, host: "a", status: 503, want: "mini-ingress: the service has no endpoints"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			front := front(t, tt.path, tt.addrs...)
			for range 10 { // the first address is drawn
				if status, got := post(t, front, tt.host, "text"); status != tt.status || got != tt.want {
					t.Fatalf("got %d %q, want %d %q", status, got, tt.status, tt.want)
				}
			}
		})
	}
	if status, _ := post(t, front(t, plain, nobody(t)), "a", "text"); status != http.StatusBadGateway {
		t.Errorf("nobody listens: got %d, want 502", status)
	}
}

// TestStreams: a header comes without a body behind it, and each part of a body as it is written.
func TestStreams(t *testing.T) {
	for _, first := range []string{"", "data: 0\n\n"} {
		next := make(chan string)
		parts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for part := range next {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		}))
		front := front(t, to("s"), parts.Listener.Addr().String())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "a"
		go func() { next <- first }()
		resp, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		read := func(want string) {
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Errorf("got %q and %v, want %q", got, err, want)
			}
		}
		read(first)
		for _, part := range []string{"data: 1\n\n", "data: 2\n\n"} {
			next <- part
			read(part)
		}
		close(next)
		resp.Body.Close()
		parts.Close()
	}
}
