package localhttp

import (
	"net/http"
	"slices"
	"strings"
)

// perConnection are the headers that belong to one connection (RFC 9110, 7.6.1).
var perConnection = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// PerConnection reports whether a header, by its canonical name, belongs to one connection: proxies do not forward
// it.
func PerConnection(name string) bool { return slices.Contains(perConnection, name) }

// DropConnection removes the headers that belong to one connection: the known ones, and those that Connection names.
func DropConnection(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range perConnection {
		delete(h, name)
	}
}

// ValidName reports whether s is a token (RFC 9110, 5.6.2), the form of header names and methods.
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// ValidValue reports whether s may be a header value: it does not end its line.
func ValidValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
