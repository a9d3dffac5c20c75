package s3test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/s3"
)

// GatewayProgram returns the path of Versity's gateway (github.com/versity/versitygw), which "make s3-gateway" builds.
// Empty: not found.
func GatewayProgram() string {
	if p := os.Getenv("ROUSE_S3_GATEWAY"); p != "" {
		return p
	}
	if p, err := exec.LookPath("versitygw"); err == nil {
		return p
	}
	if cache, err := os.UserCacheDir(); err == nil {
		if all, err := filepath.Glob(filepath.Join(cache, "rouse/tools/s3-*/versitygw")); err == nil && len(all) > 0 {
			return all[len(all)-1]
		}
	}
	return ""
}

// Gateway starts a real service with the bucket "bucket" until the test ends. It skips the test if the program is missing.
func Gateway(t testing.TB) s3.Service {
	t.Helper()
	return GatewayAt(t, "127.0.0.1")
}

// GatewayAt is [Gateway] at an address of this machine.
func GatewayAt(t testing.TB, host string) s3.Service {
	t.Helper()
	program := GatewayProgram()
	if program == "" {
		t.Skip("there is no real S3 service: make s3-gateway builds one")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	service := s3.Service{Endpoint: "http://" + at, AccessKey: "gateway", SecretKey: "gateway-secret"}
	cmd := exec.Command(program, "--quiet", "--port", at, "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+service.AccessKey, "ROOT_SECRET_ACCESS_KEY="+service.SecretKey)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var end error // set before ended is closed
	ended := make(chan struct{})
	go func() { end = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	b := s3.NewBucket(service, "bucket")
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err = b.List(ctx, "", ""); err == nil {
			return service
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ended:
			t.Fatalf("the S3 service has ended: %v", end)
		case <-ctx.Done():
			t.Fatalf("the S3 service does not answer: %v", err)
		}
	}
}
