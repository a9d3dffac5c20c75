package main

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	networking "knative.dev/networking/pkg/apis/networking/v1alpha1"
)

// to is a path that leads to one service.
func to(service string) networking.HTTPIngressPath {
	return networking.HTTPIngressPath{Splits: []networking.IngressBackendSplit{{
		IngressBackend: networking.IngressBackend{ServiceNamespace: "default", ServiceName: service, ServicePort: intstr.FromInt32(80)},
		Percent:        100,
	}}}
}

func ingress(rules ...networking.IngressRule) *networking.Ingress {
	return &networking.Ingress{Spec: networking.IngressSpec{Rules: rules}}
}

func rule(visibility networking.IngressVisibility, host string, paths ...networking.HTTPIngressPath) networking.IngressRule {
	return networking.IngressRule{
		Hosts: []string{host}, Visibility: visibility, HTTP: &networking.HTTPIngressRuleValue{Paths: paths},
	}
}

func TestFind(t *testing.T) {
	tagged, deep := to("tagged"), to("deep")
	tagged.Headers = map[string]networking.HeaderMatch{"Knative-Serving-Tag": {Exact: "old"}}
	deep.Path = "/.well-known"
	table := newTable([]*networking.Ingress{
		ingress(rule(networking.IngressVisibilityExternalIP, "a.example.com", to("plain"), tagged, deep)),
		ingress(rule(networking.IngressVisibilityClusterLocal, "a.default.svc", to("inside"))),
		ingress(rule("", "b.example.com", to("default")), rule("", "empty.example.com", networking.HTTPIngressPath{})),
		ingress(networking.IngressRule{Hosts: []string{"none.example.com"}}),
	})
	tests := []struct {
		name, host, path, tag string
		public                bool
		want                  string // empty: no route
	}{
		{name: "a host", host: "a.example.com", path: "/", public: true, want: "default/plain"},
		{name: "a host with a port, in capitals", host: "A.Example.com:80", path: "/x", public: true, want: "default/plain"},
		{name: "a header says which", host: "a.example.com", path: "/", tag: "old", public: true, want: "default/tagged"},
		{name: "a header says another", host: "a.example.com", path: "/", tag: "new", public: true, want: "default/plain"},
		{name: "the longer path comes before the header", host: "a.example.com", path: "/.well-known/x", tag: "old", public: true, want: "default/deep"},
		{name: "what is local is not public", host: "a.default.svc", path: "/", public: true},
		{name: "what is local is local", host: "a.default.svc", path: "/", want: "default/inside"},
		{name: "what is public is local too", host: "a.example.com", path: "/", want: "default/plain"},
		{name: "a rule that does not say is public", host: "b.example.com", path: "/", public: true, want: "default/default"},
		{name: "nobody's host", host: "c.example.com", path: "/", public: true},
		{name: "a path without a service", host: "empty.example.com", path: "/", public: true},
		{name: "a rule without paths", host: "none.example.com", path: "/", public: true},
		{name: "an address", host: "[::1]:80", path: "/", public: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.tag != "" {
				h.Set("Knative-Serving-Tag", tt.tag)
			}
			got := ""
			if r := table.find(tt.host, tt.path, h, tt.public); r != nil {
				got = r.splits[0].service
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Every hundredth of a route's requests goes where the weights say.
func TestPick(t *testing.T) {
	r := &route{splits: []split{{service: "old", weight: 90}, {service: "none", weight: 0}, {service: "new", weight: 10}}, total: 100}
	got := map[string]int{}
	for n := range 100 {
		got[r.pick(n).service]++
	}
	if diff := cmp.Diff(map[string]int{"old": 90, "new": 10}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := (&route{splits: []split{{service: "only"}}}).pick(0).service; got != "only" {
		t.Errorf("without weights: got %q, want the first", got)
	}
}

func TestAddresses(t *testing.T) {
	endpoints := &core.Endpoints{Subsets: []core.EndpointSubset{
		{Addresses: []core.EndpointAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, Ports: []core.EndpointPort{{Name: "http", Port: 8012}, {Name: "http2", Port: 8013}}},
		{Addresses: []core.EndpointAddress{{IP: "10.0.0.2"}}, Ports: []core.EndpointPort{{Name: "other", Port: 9090}}},
	}}
	tests := []struct {
		name, port string
		only       bool
		want       []string
	}{
		{name: "by name", port: "http2", want: []string{"10.0.0.1:8013", "[fd00::1]:8013"}},
		{name: "an unknown name", port: "metrics"},
		{name: "a service of one port", port: "unnamed", only: true, want: []string{"10.0.0.2:9090"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, addresses(endpoints, tt.port, tt.only)); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPortName(t *testing.T) {
	service := &core.Service{Spec: core.ServiceSpec{Ports: []core.ServicePort{{Name: "http", Port: 80}, {Name: "http2", Port: 81}}}}
	for _, tt := range []struct {
		port intstr.IntOrString
		want string
	}{
		{intstr.FromInt32(81), "http2"}, {intstr.FromString("http"), "http"}, {intstr.FromInt32(82), ""}, {intstr.FromString("grpc"), ""},
	} {
		if got := portName(service, tt.port); got != tt.want {
			t.Errorf("%v: got %q, want %q", &tt.port, got, tt.want)
		}
	}
}
