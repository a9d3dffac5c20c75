package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestHostileBodies: ten thousand clients promise bodies, drip them or send them without
// end. The server stays within the 512 MiB of a container, is never killed, and answers
// an honest client all the while.
func TestHostileBodies(t *testing.T) {
	clients := 10_000
	if testing.Short() {
		clients = 1000
	}
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	p.direct = true                         // a client that is no reader is the server's to bear
	p.extra = []string{"GOMEMLIMIT=460MiB"} // nine tenths of the container's, as the server would set it there
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.start("-f", absolute(t, fakes)); err != nil {
		t.Fatal(err)
	}
	body := `{"model":"fake","max_tokens":2,"messages":[{"role":"user","content":"count"}]}`
	// The kernel drops connections while the crowd fills the listener's queue: as any client, this one tries again until its whole time is over.
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	honest := func(n int) {
		t.Helper()
		for range n {
			resp, err := client.Post(p.server.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("an honest client gets %s", resp.Status)
			}
		}
	}
	honest(10)
	crowd := &hostileCrowd{Address: "127.0.0.1:" + p.server.port(), Clients: clients, Sources: 500}
	ctx, stop := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		crowd.Run(ctx)
	}()
	defer func() { stop(); <-gone }()
	if err := retry(func() error {
		honest(20)
		if open, refused := crowd.Open(), crowd.Refused(); open+refused < clients || refused == 0 {
			return fmt.Errorf("%d of %d are connected, %d were cut off", open, clients, refused)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	honest(200)
	select {
	case <-p.server.ended:
		t.Fatalf("the server ended: %v", p.server.err)
	default:
	}
	if most := peak(t, p.server.cmd.Process.Pid); most > 512*api.MiB {
		t.Errorf("the server took %s", most)
	} else {
		t.Logf("%d connected, %d cut off, at most %s", crowd.Open(), crowd.Refused(), most)
	}
}

// peak is the most memory that a process had.
func peak(t *testing.T, pid int) api.Bytes {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return api.Bytes(n) * api.KiB
		}
	}
	t.Fatal("the kernel does not say how much memory a process had")
	return 0
}
