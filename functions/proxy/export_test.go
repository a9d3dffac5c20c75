package proxy

import "github.com/rouse-dev/rouse/api"

// Route reports whether a path is a client path, and returns its pattern.
func Route(method, path string) (pattern string, found bool) {
	p, found := api.FindPath(method, path)
	return p.Pattern, found
}
