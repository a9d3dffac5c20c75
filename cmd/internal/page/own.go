package page

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Own reports whether an administrative request comes from no page, or from the page of the server that it came to.
func Own(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	list := r.Header["Origin"]
	if len(list) == 0 {
		return true
	}
	u, err := url.Parse(list[0])
	return len(list) == 1 && err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// isLoopback reports whether a Host header can only name this machine. Another domain that resolves to it is DNS rebinding.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
