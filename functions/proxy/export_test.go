package proxy

// Route says whether a path is a client path, and its pattern.
func Route(method, path string) (pattern string, found bool) {
	r, found := lookUp(method, path)
	return r.pattern, found
}
