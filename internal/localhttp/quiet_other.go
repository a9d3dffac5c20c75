//go:build !unix

package localhttp

// Quiet cannot poll the socket on this OS; a stale connection fails at its first read or write.
func (*Conn) Quiet() bool { return true }
