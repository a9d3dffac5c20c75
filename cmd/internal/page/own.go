package page

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Own says whether a request that administers comes from no page, or from the page of the server that it came to.
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

// isLoopback says whether a Host header names nothing but this machine. A name of somebody's domain that leads here is a page's
// that had it changed.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}
