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

// PerConnection says whether a header, by its canonical name, belongs to one
// connection: who passes a message on leaves it out.
func PerConnection(name string) bool { return slices.Contains(perConnection, name) }

// DropConnection removes what belongs to the connection that h came by: the
// headers of every connection, and those that Connection names.
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

// ValidName says whether s is a token (RFC 9110, 5.6.2), as names of headers and
// methods are.
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

// ValidValue says whether s can be a header's value: it does not end its line.
func ValidValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
