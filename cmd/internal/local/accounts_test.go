package local_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/config/apikey"
)

// serveKept serves pico on listen until it is killed. The folder dir has its keys and its state. Pico declares a GPU, which is
// simulated.
func serveKept(listen, dir string) error {
	pico, err := config.ForModel("pico", "test")
	if err != nil {
		return err
	}
	pico.Memory.Devices = 1
	return local.Run(context.Background(), local.Config{Listen: listen, BaseDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Keys: filepath.Join(dir, "keys.yaml"),
		Functions: []api.Function{pico}, Memory: api.GiB, NvidiaSMI: filepath.Join(dir, "nvidia-smi"), GPUInterval: time.Minute})
}

// TestAccountsOutliveKill kills a server and starts it again: what was used is still known, and a day's limit that was used up still is.
func TestAccountsOutliveKill(t *testing.T) {
	dir, err := os.MkdirTemp("", "r") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	file("nvidia-smi", "#!/bin/sh\necho GPU-1, L4, 24000, 0\n", 0o700)
	file("keys.yaml", fmt.Sprintf("keys:\n- {name: alice, tenant: acme, hash: %s, tokensPerDay: 1}\n- {name: bob, tenant: acme, hash: %s}\n", apikey.Hash("k-alice"), apikey.Hash("k-bob")), 0o600)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen, port := free.Addr().String(), free.Addr().(*net.TCPAddr).Port
	free.Close()
	s := &serverOf{t: t, http: &http.Client{Transport: api.NewTransport(4)}, info: local.Info{URL: "http://" + listen, Admin: local.AdminSocket(filepath.Join(dir, "run"), port)}}
	until := func(what string, ok func() bool) {
		t.Helper()
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			if ok() {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		t.Fatalf("not within a minute: %s", what)
	}
	serve := func() (kill func()) {
		var out strings.Builder
		server := exec.CommandContext(t.Context(), os.Args[0], "kept", listen, dir)
		server.Stdout, server.Stderr = &out, &out
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		until("the server is there", func() bool {
			network, address := s.info.Admin.Network()
			c, err := net.Dial(network, address) // made after the front door
			if err != nil {
				return false
			}
			return c.Close() == nil
		})
		return func() { _ = server.Process.Kill(); _ = server.Wait() }
	}
	ask := func(key string) (int, string) {
		return s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question, "Authorization", "Bearer "+key)
	}
	used := func() (gpuSeconds float64, requests int64) {
		var u admin.Usage
		s.admin(http.MethodGet, admin.PathUsage, nil, &u)
		for _, r := range u.Rows {
			if r.Tenant == "acme" {
				gpuSeconds, requests = gpuSeconds+r.GPUSeconds, requests+r.Requests
			}
		}
		return gpuSeconds, requests
	}
	kill := serve()
	defer func() { kill() }()
	for _, c := range []struct {
		key    string
		status int
	}{{"k-alice", http.StatusOK}, {"k-alice", http.StatusTooManyRequests}, {"k-bob", http.StatusOK}} {
		if status, body := ask(c.key); status != c.status || status == http.StatusTooManyRequests && !strings.Contains(body, "1 tokens of this day: the next one begins at ") {
			t.Fatalf("%s: status %d, want %d: %s", c.key, status, c.status, body)
		}
	}
	path := filepath.Join(dir, "state", fmt.Sprintf("accounts-%d.json", port))
	until("what was used is in the file", func() bool {
		raw, _ := os.ReadFile(path)
		return strings.Count(string(raw), `"requests":1,`) >= 4 // of both keys, in all and in the hour
	})
	kill()
	kill = serve()
	if gpuSeconds, requests := used(); gpuSeconds <= 0 || requests != 2 {
		t.Errorf("after the kill %g GPU-seconds and %d requests are known, want some and 2", gpuSeconds, requests)
	}
	if status, body := ask("k-alice"); status != http.StatusTooManyRequests {
		t.Errorf("after the kill alice got %d: %s", status, body)
	}
	kill()
	file(filepath.Join("state", filepath.Base(path)), `{"version":1,"checksum":"0`, 0o600)
	kill = serve() // counting begins again
	if status, body := ask("k-alice"); status != http.StatusOK {
		t.Errorf("with a damaged file alice got %d: %s", status, body)
	}
}
