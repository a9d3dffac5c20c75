package main

import (
	"net/http"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	networking "knative.dev/networking/pkg/apis/networking/v1alpha1"
)

// table is the routes of each host, the most specific first.
type table map[string][]route

type route struct {
	path    string // prefix
	match   map[string]string
	splits  []split
	total   int               // of the splits' weights
	headers map[string]string // set on every request
	host    string            // for the service; empty: what the client sent
	public  bool
}

type split struct {
	service string // namespace/name
	port    intstr.IntOrString
	weight  int
	headers map[string]string
}

func newTable(all []*networking.Ingress) table {
	t := table{}
	for _, ingress := range all {
		for _, rule := range ingress.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			public := rule.Visibility == networking.IngressVisibilityExternalIP || rule.Visibility == ""
			for _, path := range rule.HTTP.Paths {
				r := newRoute(path, public)
				if len(r.splits) == 0 {
					continue
				}
				for _, host := range rule.Hosts {
					t[host] = append(t[host], r)
				}
			}
		}
	}
	for _, routes := range t {
		sort.SliceStable(routes, func(i, j int) bool {
			if a, b := len(routes[i].path), len(routes[j].path); a != b {
				return a > b
			}
			return len(routes[i].match) > len(routes[j].match)
		})
	}
	return t
}

func newRoute(path networking.HTTPIngressPath, public bool) route {
	r := route{path: path.Path, headers: path.AppendHeaders, host: path.RewriteHost, public: public, match: map[string]string{}}
	for name, m := range path.Headers {
		r.match[name] = m.Exact
	}
	for _, s := range path.Splits {
		r.splits = append(r.splits, split{
			service: s.ServiceNamespace + "/" + s.ServiceName, port: s.ServicePort, weight: s.Percent, headers: s.AppendHeaders,
		})
		r.total += s.Percent
	}
	return r
}

// find returns nil if there is none. public: only routes that are visible outside count.
func (t table) find(host, path string, h http.Header, public bool) *route {
	routes := t[hostname(host)]
	for i := range routes {
		r := &routes[i]
		if (r.public || !public) && strings.HasPrefix(path, r.path) && r.matches(h) {
			return r
		}
	}
	return nil
}

// hostname returns host without a port, in lower case.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(host)
}

func (r *route) matches(h http.Header) bool {
	for name, value := range r.match {
		if h.Get(name) != value {
			return false
		}
	}
	return true
}

// pick chooses a split by weight; n is below the total.
func (r *route) pick(n int) *split {
	for i := range r.splits {
		if n -= r.splits[i].weight; n < 0 {
			return &r.splits[i]
		}
	}
	return &r.splits[0] // none has a weight
}
