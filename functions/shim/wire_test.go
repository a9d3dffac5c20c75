//go:build linux

package shim_test

import (
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/rouse-dev/rouse/functions/shim"
)

// Invalid messages end only their own connection.
func TestNonsense(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c, err := shim.Open(t.Context(), config(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	child, err := c.Start(runtimeSpec(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, sent := range map[string]string{
		"no JSON":        "hello",
		"a type":         `{"pid":"x"}`,
		"half a message": `{"id":9,"call":"dance"`,
		"nothing":        "",
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.UnixConn).CloseWrite()
		if rest, err := io.ReadAll(conn); len(rest) > 0 {
			t.Errorf("%s is answered with %q, %v", name, rest, err)
		}
		_ = conn.Close()
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// An unknown call is answered; one for a missing process does nothing.
	if _, err := io.WriteString(conn, `{"call":"kill","pid":1}{"id":9,"call":"dance"}`); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Errorf("an unknown call: %v, want an answer", err)
	}
	if _, _, err := child.Memory(); err != nil {
		t.Errorf("after all that: %v", err)
	}
	if got := child.Status(); got != "" {
		t.Errorf("the runtime ended: %s", got)
	}
}
