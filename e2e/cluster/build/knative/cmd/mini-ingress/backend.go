package main

import (
	"net"
	"strconv"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

type backends struct {
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	name      string // of the internal listener, for pods
	internal  string // its address
}

// find returns the addresses of the split's service. Knative writes Endpoints objects itself; slices follow later.
func (b backends) find(s *split) (addrs []string, http2 bool) {
	namespace, name, err := cache.SplitMetaNamespaceKey(s.service)
	if err != nil {
		return nil, false
	}
	service, err := b.services.Services(namespace).Get(name)
	if err != nil {
		return nil, false
	}
	port := portName(service, s.port)
	http2 = port == "http2" || port == "h2c"
	if service.Spec.Type == core.ServiceTypeExternalName {
		// a domain mapping leads to this listener's own name: no need to ask DNS
		if service.Spec.ExternalName == b.name {
			return []string{b.internal}, http2
		}
		return []string{net.JoinHostPort(service.Spec.ExternalName, s.port.String())}, http2
	}
	endpoints, err := b.endpoints.Endpoints(namespace).Get(name)
	if err != nil {
		return nil, http2
	}
	return addresses(endpoints, port, len(service.Spec.Ports) == 1), http2
}

func portName(service *core.Service, port intstr.IntOrString) string {
	for _, p := range service.Spec.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.Port == port.IntVal {
			return p.Name
		}
	}
	return ""
}

// The only port of a service needs no name.
func addresses(e *core.Endpoints, port string, only bool) (all []string) {
	for _, subset := range e.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port && (!only || len(subset.Ports) > 1) {
				continue
			}
			for _, a := range subset.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return all
}
