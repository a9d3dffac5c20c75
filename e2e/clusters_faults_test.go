package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Hosts of the far network: two front doors, and three clusters.
const (
	hostX byte = 1 + iota
	hostY
	hostA
	hostB
	hostC
)

// farFunctions has what every cluster has (shared), and with the second document what one has alone.
const (
	farShared = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: shared}
spec: {template: {spec: {containerConcurrency: 4, containers: [{image: a, command: [fakeruntime], args: [-port, $(PORT), -model, any]}]}}}
`
	farAlone = `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: alone}
spec: {template: {spec: {containerConcurrency: 4, containers: [{image: a, command: [fakeruntime], args: [-port, $(PORT), -model, any]}]}}}
`
)

// far is three clusters and two front doors in a network that can be disturbed. Clusters A and B join both front doors,
// and C joins Y alone, so that X reaches the functions that only C has through Y.
type far struct {
	t      *testing.T
	net    *network
	places map[byte]*place
	args   map[byte][]string
	client *http.Client
	number atomic.Int64 // of the last request
	wrong  bool         // clocks were set wrong
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{t: t, net: newNetwork(t, hostC), places: map[byte]*place{}, args: map[byte][]string{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 2 * patience}}
	dir := t.TempDir()
	certificate, write := newCertificate(t, dir, f.net.address(hostX), f.net.address(hostY))
	names := map[byte]string{hostX: "x", hostY: "y", hostA: "a", hostB: "b", hostC: "c"}
	for host, name := range names {
		write(name, []byte(name+"\n"))
		p, err := newPlace()
		if err != nil {
			t.Fatal(err)
		}
		p.netns = f.net.namespace(host)
		f.places[host] = p
	}
	t.Cleanup(func() {
		for host, p := range f.places {
			if t.Failed() && p.server != nil {
				t.Logf("%s printed:\n%s", names[host], p.server.output())
			}
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}
	})
	for host, peer := range map[byte]byte{hostX: hostY, hostY: hostX} {
		file := fmt.Sprintf("name: %s\nlisten: %s:7443\ncertificate: %s\nkey: %s\n", names[host], f.net.address(host), certificate, filepath.Join(dir, "key.pem")) +
			fmt.Sprintf("peers: {addresses: [%q], tokenFile: %s, authority: %s}\nclusters:\n", f.net.address(peer)+":7443", filepath.Join(dir, names[host]), certificate)
		for _, name := range names {
			if name != names[host] {
				file += fmt.Sprintf("- {name: %s, tokenHashes: [%x], functions: [\"*/*\"], front: %v}\n", name, sha256.Sum256([]byte(name)), name == names[peer])
			}
		}
		f.args[host] = []string{"--listen", f.net.address(host) + ":8080", "--trusted-peers", f.net.address(tester), "--clusters", write(names[host]+".yaml", []byte(file))}
	}
	shared := write("shared.yaml", []byte(farShared))
	both := write("both.yaml", []byte(farShared+farAlone))
	for host, files := range map[byte]string{hostA: shared, hostB: shared, hostC: both} {
		f.args[host] = []string{"-f", files, "--join", f.net.address(hostY) + ":7443", "--cluster", names[host], "--cluster-token-file", filepath.Join(dir, names[host]), "--front-ca", certificate}
		if host != hostC {
			f.args[host] = append(f.args[host], "--join", f.net.address(hostX)+":7443")
		}
	}
	var starting sync.WaitGroup
	for host := range names {
		starting.Go(func() { f.start(host) })
	}
	starting.Wait()
	f.known(hostX)
	f.known(hostY)
	return f
}

// start starts the server of a host, again if it was killed.
func (f *far) start(host byte) {
	if err := f.places[host].start(f.args[host]...); err != nil {
		f.t.Error(err)
	}
}

// kill ends the server of a host without a word.
func (f *far) kill(host byte) {
	s := f.places[host].server
	_ = syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
	if err := f.places[host].alone(); err != nil {
		f.t.Error(err)
	}
}

// url is a front door's address for clients.
func (f *far) url(front byte) string { return "http://" + f.net.address(front) + ":8080" }

// known waits until a front door has both functions.
func (f *far) known(front byte) {
	if err := retry(func() error {
		resp, err := f.client.Get(f.url(front) + "/v1/models")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err == nil && (!strings.Contains(string(raw), `"shared"`) || !strings.Contains(string(raw), `"alone"`)) {
			err = fmt.Errorf("not both functions: %s", raw)
		}
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

// The results of a request other than its answer.
var (
	errLost = errors.New("lost before the first byte")
	errCut  = errors.New("cut after the first byte, and said so")
)

// ask sends a request, whose answer is like no other's near it.
func (f *far) ask(front byte, model string, stream bool) error {
	i := int(f.number.Add(1))
	b := &burst{models: []string{model}, fake: true, stream: stream, more: i % 7}
	body, want := b.question(i)
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, f.url(front)+"/v1/completions", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Fault", map[bool]string{true: "delay=20ms,pause=10ms", false: "delay=100ms"}[stream])
	resp, err := f.client.Do(r)
	if err != nil {
		return fmt.Errorf("request %d: %w: %w", i, errLost, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("request %d: %w: %s: %s", i, errLost, resp.Status, raw)
	}
	switch got, err := text(resp.Body, stream); {
	case errors.Is(err, errWrong):
		return fmt.Errorf("request %d: %w", i, err)
	case err != nil:
		return fmt.Errorf("request %d: %w: %w", i, errCut, err)
	case got != want:
		return fmt.Errorf("request %d: answered %q, want %q: %w", i, got, want, errWrong)
	}
	return nil
}

// allowed lists the effects that a fault may have on requests.
type allowed struct {
	cut   bool // an answer that has begun may end, and says so
	front byte // this front door is killed: its own clients may lose their requests there
}

// under has clients ask both front doors for both functions while disturb runs, and waits for every answer.
func (f *far) under(name string, may allowed, disturb func()) {
	f.t.Helper()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var right, cut, gone atomic.Int64
	for k := range 12 {
		clients.Go(func() {
			for n := k; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				front, model := []byte{hostX, hostY}[n%2], []string{"shared", "shared", "alone"}[n%3]
				err := f.ask(front, model, n%4 < 2)
				switch {
				case err == nil:
					right.Add(1)
				case front == may.front && !errors.Is(err, errWrong):
					gone.Add(1)
					time.Sleep(20 * time.Millisecond) // no server runs until it is started
				case may.cut && errors.Is(err, errCut):
					cut.Add(1)
				default:
					f.t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	disturb()
	close(stop)
	clients.Wait()
	f.net.mu.Lock()
	lost := f.net.lost
	f.net.mu.Unlock()
	f.t.Logf("%-28s %d answered, %d cut and said so, %d at a front door that was killed; %d packets lost so far", name+":", right.Load(), cut.Load(), gone.Load(), lost)
	if right.Load() == 0 {
		f.t.Errorf("%s: nothing was answered", name)
	}
}

// outage has packets fail in some directions for a time. It returns how long after the outage each front door answered
// a request from the middle of it.
func (f *far) outage(name string, d time.Duration, ways ...[2]byte) (x, y time.Duration) {
	time.Sleep(200 * time.Millisecond) // something runs
	for _, w := range ways {
		f.net.disturb(w[0], w[1], fault{loss: 1})
	}
	time.Sleep(d / 2) // the network is real, and so is its silence
	var waited sync.WaitGroup
	var healed time.Time
	var answered [2]time.Time
	for k, front := range []byte{hostX, hostY} {
		waited.Go(func() {
			if err := f.ask(front, "alone", false); err != nil {
				f.t.Errorf("%s: asked during it: %v", name, err)
			}
			answered[k] = time.Now()
		})
	}
	time.Sleep(d - d/2)
	f.net.heal()
	healed = time.Now()
	waited.Wait()
	return answered[0].Sub(healed), answered[1].Sub(healed)
}

// recovery says how soon after an outage C is of use again, where there is no load.
func (f *far) recovery(name string, d time.Duration, ways ...[2]byte) {
	x, y := f.outage(name, d, ways...)
	f.t.Logf("%-28s what C alone has is answered by X %v and by Y %v after it, of which 100ms are the answer's own", name+":", x.Round(time.Millisecond), y.Round(time.Millisecond))
}

// clocks moves the clock of C an hour ahead and the clock of Y an hour back, separates the two for a time, and moves
// both clocks back.
func (f *far) clocks(silence time.Duration) {
	jump := func(cluster, front int32) {
		for host, seconds := range map[byte]int32{hostC: cluster, hostY: front} {
			switch err := shiftClock(f.places[host].server.cmd.Process.Pid, seconds); {
			case errors.Is(err, errNoClock):
				f.t.Log(err)
			case err != nil:
				f.t.Errorf("the clock of host %d: %v", host, err)
			case seconds != 0:
				f.wrong = true
			}
		}
	}
	f.wrong = false
	jump(3600, -3600)
	_, _ = f.outage("clocks an hour wrong", max(silence, 3*time.Second), both(hostC, hostY)...) // longer than a lease
	if f.wrong && (!f.places[hostC].server.logsAt(time.Hour) || !f.places[hostY].server.logsAt(-time.Hour)) {
		f.t.Error("the clocks were not wrong: nothing was logged by them")
	}
	jump(0, 0)
}

// both are the two directions between hosts.
func both(a, b byte) [][2]byte { return [][2]byte{{a, b}, {b, a}} }

// TestClusterFaults: three clusters and two front doors under load, while links are silent, deaf in one direction, slow and
// lossy, clocks are an hour wrong, and servers are killed. No request is lost before its first byte, none gets another answer than its own, and no
// answer that is cut looks whole. ROUSE_SOAK=N does it N times, and with silences of up to 10 s.
func TestClusterFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	f := newFar(t)
	rounds, _ := strconv.Atoi(os.Getenv("ROUSE_SOAK"))
	for round := range max(rounds, 1) {
		f.round(time.Duration(2+2*(round%5))*time.Second, rounds > 0)
	}
}

// round does everything once. silence is how long links are cut.
func (f *far) round(silence time.Duration, long bool) {
	cut := allowed{cut: silence > 2*time.Second} // beyond, the front door may take a link for dead
	mixed := append(both(hostA, hostX), [2]byte{hostB, hostY}, [2]byte{hostY, hostC})
	f.recovery("C silent", silence, both(hostC, hostY)...)
	f.recovery("C deaf", silence, [2]byte{hostY, hostC})
	f.recovery("Y deaf to C", silence, [2]byte{hostC, hostY})
	f.under("links silent", cut, func() { _, _ = f.outage("links silent", silence, mixed...) })
	if long {
		for name, ways := range map[string][][2]byte{
			"all silent":            append(append(both(hostA, hostX), both(hostB, hostY)...), both(hostC, hostY)...),
			"front doors hear none": {{hostA, hostX}, {hostA, hostY}, {hostB, hostX}, {hostB, hostY}, {hostC, hostY}},
			"clusters hear none":    {{hostX, hostA}, {hostY, hostA}, {hostX, hostB}, {hostY, hostB}, {hostY, hostC}},
		} {
			f.under(name, cut, func() { _, _ = f.outage(name, silence, ways...) })
		}
	}
	f.under("front doors apart", cut, func() { _, _ = f.outage("front doors apart", silence, both(hostX, hostY)...) })
	f.under("slow and lossy", allowed{}, func() {
		for _, front := range []byte{hostX, hostY} {
			for _, cluster := range []byte{hostA, hostB, hostC} {
				f.net.disturb(front, cluster, fault{loss: 0.02, delay: 40 * time.Millisecond})
				f.net.disturb(cluster, front, fault{loss: 0.02, delay: 40 * time.Millisecond})
			}
		}
		time.Sleep(silence)
		f.net.heal()
	})
	f.under("clocks an hour wrong", cut, func() { f.clocks(silence) })
	f.under("clusters killed", allowed{cut: true}, func() {
		time.Sleep(300 * time.Millisecond) // something runs
		f.kill(hostB)
		f.kill(hostC)
		f.start(hostC)
		f.start(hostB)
	})
	f.under("a front door killed", allowed{cut: true, front: hostX}, func() {
		time.Sleep(300 * time.Millisecond) // something runs
		f.kill(hostX)
		f.start(hostX)
		f.known(hostX)
	})
	for _, front := range []byte{hostX, hostY} {
		for _, model := range []string{"shared", "alone"} {
			if err := f.ask(front, model, true); err != nil {
				f.t.Errorf("afterwards: %v", err)
			}
		}
	}
}
