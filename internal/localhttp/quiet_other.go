//go:build !unix

package localhttp

// Quiet can't poll here; a stale connection fails at its first use.
func (*Conn) Quiet() bool { return true }
