package localhttp

import (
	"net/http"
	"slices"
	"strings"
)

// PerConnection reports whether a header, by its canonical name, belongs to one connection (RFC 9110, 7.6.1): proxies
// do not forward it.
func PerConnection(name string) bool {
	return slices.Contains([]string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}, name)
}

// DropNamed removes the headers that the header Connection names in its lines.
func DropNamed(h http.Header, lines []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
}
