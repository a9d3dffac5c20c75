//go:build !unix

package localhttp

// quiet cannot poll the socket on this OS; a stale connection fails at its first read or write.
func (*conn) quiet() bool { return true }
