package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wire carries connections to an address, until it is cut.
type wire struct {
	net.Listener
	mu    sync.Mutex // guards the fields below
	to    string     // empty: it is cut
	conns []net.Conn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l}
	t.Cleanup(func() { _ = l.Close(); w.lead("") })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			w.carry(near)
		}
	}()
	return w
}

// lead ends all connections, and carries later ones to an address; empty: none.
func (w *wire) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.to, w.conns = to, nil
}

func (w *wire) carry(near net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	far, err := net.Dial("tcp", w.to)
	if w.to == "" || err != nil {
		_ = near.Close()
		return
	}
	w.conns = append(w.conns, near, far)
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		}()
	}
}

// doors are front doors that are declared at one another.
type doors struct {
	t           *testing.T
	all         []*place
	wires       map[[2]int]*wire // from a door's agent to another door
	certificate string
}

// newDoors starts front doors with the same keys, which take a cluster desk.
func newDoors(t *testing.T, n int, keys string, args ...string) *doors {
	t.Helper()
	d := &doors{t: t, wires: map[[2]int]*wire{}}
	dir := t.TempDir()
	certificate, write := newCertificate(t, dir, "127.0.0.1")
	file := write("keys.yaml", []byte(keys))
	for from := range n {
		for to := range n {
			if from != to {
				d.wires[[2]int{from, to}] = newWire(t)
			}
		}
	}
	name := func(i int) string { return string(rune('x' + i)) }
	for i := range n {
		var addresses, declared []string
		for j := range n {
			if j != i {
				addresses = append(addresses, fmt.Sprintf("%q", d.wires[[2]int{i, j}].Addr()))
				declared = append(declared, fmt.Sprintf("- {name: %s, tokenHashes: [%x], functions: [\"default/*\"], front: true}\n", name(j), sha256.Sum256([]byte(name(j)))))
			}
		}
		clusters := fmt.Sprintf("name: %s\nlisten: 127.0.0.1:0\ncertificate: %s\nkey: %s\npeers: {addresses: [%s], tokenFile: %s, authority: %s}\nclusters:\n%s", name(i), certificate, filepath.Join(dir, "key.pem"),
			strings.Join(addresses, ", "), write(name(i), []byte(name(i))), certificate, strings.Join(declared, ""))
		clusters += fmt.Sprintf("- {name: desk, tokenHashes: [%x], functions: [\"default/*\"]}\n", sha256.Sum256([]byte("desk")))
		d.all = append(d.all, newServer(t, append(args, "--keys", file, "--clusters", write(name(i)+".yaml", []byte(clusters)))...))
	}
	d.certificate = certificate
	d.connect()
	return d
}

// connect carries all connections between the doors; cut, none.
func (d *doors) connect() {
	for ends, w := range d.wires {
		w.lead(d.all[ends[1]].joinAddress(d.t))
	}
}

func (d *doors) cut() {
	for _, w := range d.wires {
		w.lead("")
	}
}

// ask sends a request of a key to a door, and reports whether it was let in.
func (d *doors) ask(door int, key, model string) bool {
	d.t.Helper()
	req, err := http.NewRequest(http.MethodPost, d.all[door].server.url+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"model":%q,"max_tokens":1,"messages":[{"role":"user","content":"echo a"}]}`, model)))
	if err != nil {
		d.t.Error(err)
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("X-Fault", "delay=50ms")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Error(err)
		return false
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		d.t.Errorf("door %d: %s %s", door, resp.Status, text)
	}
	return resp.StatusCode == http.StatusOK
}

// flood sends requests of a key to a door until one is refused, and returns how many were let in.
func (d *doors) flood(door int, key string) (n int) {
	for d.ask(door, key, "pico") {
		n++
	}
	return n
}

// TestDoorsShareLimits: a key of 6 requests a minute has 6 in all, through however many front doors they come. While
// the doors reach each other all of them may come through one, otherwise an equal part through each.
func TestDoorsShareLimits(t *testing.T) {
	const limit = 6
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			keys := "keys:\n"
			for _, key := range []string{"whole", "apart"} {
				keys += fmt.Sprintf("- {name: %s, hash: %x, requestsPerMinute: %d}\n", key, sha256.Sum256([]byte(key)), limit)
			}
			d := newDoors(t, n, keys, "--model", "pico")
			// The keys fill again while the test runs, however long that takes.
			begun := map[string]time.Time{"whole": time.Now()}
			in := map[string]int{}
			check := func(key, when string) {
				t.Helper()
				if most := limit + int(time.Since(begun[key]).Minutes()*limit); in[key] > most {
					t.Errorf("%s: %d requests were let in, want %d at most", when, in[key], most)
				}
			}
			if err := retry(func() error { // until the doors have met
				if in["whole"] += d.flood(0, "whole"); in["whole"] < limit {
					return fmt.Errorf("one door lets in %d, want all %d", in["whole"], limit)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			for door := range n {
				in["whole"] += d.flood(door, "whole")
			}
			check("whole", "while they reach each other")

			d.cut()
			begun["apart"] = time.Now()
			for door := range n {
				got := d.flood(door, "apart")
				if in["apart"] += got; got < limit/n {
					t.Errorf("door %d lets in %d while the others can't be reached, want its part", door, got)
				}
			}
			check("apart", "while they do not reach each other")
			d.connect()
			for door := range n {
				in["apart"] += d.flood(door, "apart")
			}
			check("apart", "afterwards")
			check("whole", "afterwards")
		})
	}
}

// TestClientsOfDoorsShareSlots: the slots of a cluster go to clients in equal parts, however many doors each comes through and
// however many requests it has at once.
func TestClientsOfDoorsShareSlots(t *testing.T) {
	keys := "keys:\n"
	for _, key := range []string{"a", "b"} {
		keys += fmt.Sprintf("- {name: %s, hash: %x, tenant: %s}\n", key, sha256.Sum256([]byte(key)), key)
	}
	for _, test := range []struct {
		name string
		a, b []int // the requests at once of each client, by door
	}{{"one door each", []int{40, 0}, []int{0, 8}}, {"both doors and one", []int{20, 20}, []int{0, 8}}} {
		t.Run(test.name, func(t *testing.T) {
			d := newDoors(t, 2, keys)
			token, functions := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "functions.yaml")
			if err := errors.Join(os.WriteFile(token, []byte("desk"), 0o600), os.WriteFile(functions, []byte(farShared), 0o600)); err != nil {
				t.Fatal(err)
			}
			newServer(t, "--join", d.all[0].joinAddress(t)+","+d.all[1].joinAddress(t), "--cluster", "desk", "--cluster-token-file", token, "--front-ca", d.certificate,
				"-f", functions)
			for door := range d.all {
				if err := retry(func() error {
					out, err := d.all[door].rouse("list")
					if err == nil && !strings.Contains(out, "shared") {
						err = fmt.Errorf("no model: %s", out)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			d.ask(0, "a", "shared")
			const enough = 400
			var served, total atomic.Int64 // served: of b
			var all sync.WaitGroup
			for key, doors := range map[string][]int{"a": test.a, "b": test.b} {
				for door, clients := range doors {
					for range clients {
						all.Go(func() {
							for total.Load() < enough && d.ask(door, key, "shared") {
								if total.Add(1) <= enough && key == "b" {
									served.Add(1)
								}
							}
						})
					}
				}
			}
			all.Wait()
			if n := served.Load(); n < enough*2/5 || n > enough*3/5 {
				t.Errorf("one of two clients got %d of %d, want about half", n, enough)
			}
			t.Logf("one of two clients got %d of %d", served.Load(), enough)
		})
	}
}
