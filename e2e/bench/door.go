package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/e2e/bench/child"
	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/process"
)

// doors are two servers: a cluster that has a function whose model server does nothing, and a front door that it has joined.
type doors struct{ cluster, front *child.Up }

func (d *doors) stop() {
	d.cluster.Stop()
	d.front.Stop()
}

func (b *bench) startDoors(ctx context.Context) (*doors, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	at := "127.0.0.1:" + port
	dir := filepath.Join(b.dir, "front")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	certificate, key, err := selfSigned()
	if err != nil {
		return nil, err
	}
	const token = "bench"
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, data := range map[string][]byte{
		"cert.pem": certificate, "key.pem": key, "token": []byte(token),
		"clusters.yaml": fmt.Appendf(nil, "name: front\nlisten: %s\ncertificate: %s\nkey: %s\nclusters:\n- {name: desk, tokenHashes: [%x], functions: [default/*]}\n", at, in("cert.pem"), in("key.pem"), sha256.Sum256([]byte(token))),
	} {
		if err := os.WriteFile(in(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	d := &doors{}
	if d.front, err = child.StartUp(ctx, child.UpConfig{Rouse: b.rouse, Dir: dir, Args: []string{"--no-gpu", "--clusters", in("clusters.yaml")}}); err != nil {
		return nil, err
	}
	d.cluster, err = child.StartUp(ctx, child.UpConfig{Rouse: b.rouse, Dir: b.dir, Manifest: manifest("fake", "rouse.dev/model: fake", fmt.Sprintf("        command: [%q, %s, -port, $(PORT)]\n", self, fakeRuntime)),
		Args: []string{"--no-gpu", "--join", at, "--cluster", "desk", "--cluster-token-file", in("token"), "--front-ca", in("cert.pem")}})
	if err != nil {
		d.front.Stop()
		return nil, err
	}
	if err := d.known(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// known waits until the front door has the function.
func (d *doors) known(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := d.front.Function(ctx, "fake"); err == nil {
			return nil
		}
	}
	return errors.New("the cluster does not come to the front door")
}

// selfSigned is a certificate for 127.0.0.1 and its key, as PEM.
func selfSigned() (certificate, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// door measures what a front door adds to the requests that it sends to a cluster: two real servers, and one link.
func (b *bench) door(ctx context.Context) ([]report.Measurement, error) {
	d, err := b.startDoors(ctx)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	body := fmt.Appendf(nil, `{"model":"fake","messages":[{"role":"user","content":%q}],"max_tokens":1}`, strings.Repeat("x", 1<<10))
	direct, through := newClient(d.cluster.Door.Base), newClient(d.front.Door.Base)
	defer direct.Close()
	defer through.Close()
	both := []client{direct, through}
	n := b.times(200)
	for _, c := range both { // starts what is not there, and opens connections
		if _, err := c.serial(ctx, n, pathChat, body); err != nil {
			return nil, err
		}
		if _, err := c.flood(ctx, b.while(300*time.Millisecond), body); err != nil {
			return nil, err
		}
	}
	var latency, rate, processor [2][]float64 // of direct and through
	for range b.rounds(30) {
		for i, c := range both {
			took, err := c.serial(ctx, n, pathChat, body)
			if err != nil {
				return nil, err
			}
			latency[i] = append(latency[i], report.Quantile(took, 0.5))
		}
	}
	for range b.rounds(15) {
		for i, c := range both {
			before, began := d.processorTime(), time.Now()
			perSecond, err := c.flood(ctx, b.while(500*time.Millisecond), body)
			if err != nil {
				return nil, err
			}
			took := (d.processorTime() - before) * 1e6
			rate[i], processor[i] = append(rate[i], perSecond), append(processor[i], took/(perSecond*time.Since(began).Seconds()))
		}
	}
	states, err := d.states(ctx, b.rounds(100))
	if err != nil {
		return nil, err
	}
	const against = "the same requests sent to the cluster's own rouse up"
	return []report.Measurement{
		report.Compare(report.Measurement{Name: "a front door, one at a time", Unit: "µs", Against: against,
			What: fmt.Sprintf("the p50 of rounds of %d chat requests of 1 KiB over TCP on loopback, through a rouse up that is a front door to another, whose model server does nothing", n)}, latency[1], latency[0]),
		report.Compare(report.Measurement{Name: "a front door, " + fmt.Sprint(manyAtOnce) + " at a time", Unit: "requests/s", Against: against,
			What: "the same requests, answered per second in rounds of 500 ms; the client and all servers share the machine's cores"}, rate[1], rate[0]),
		report.Compare(report.Measurement{Name: "a front door, processor time", Unit: "µs", Against: against,
			What: fmt.Sprintf("user and system time of both rouse up for each of these requests, %d at a time; their function and its model server are left out", manyAtOnce)}, processor[1], processor[0]),
		{Name: "a front door, a state is known", Unit: "ms", N: len(states), Rouse: report.Summarise(states),
			What: "from when a cluster's own rouse up shows its function asleep or awake until the front door does, both asked ten times a millisecond"},
	}, nil
}

// processorTime is that of both servers, in seconds; 0 where it can't be read.
func (d *doors) processorTime() float64 {
	a, _ := d.cluster.ProcessorTime()
	b, _ := d.front.ProcessorTime()
	return a + b
}

// states measures how much later than its cluster the front door shows that the function sleeps or wakes, in milliseconds.
func (d *doors) states(ctx context.Context, n int) (late []float64, err error) {
	type seen struct {
		at  time.Time
		err error
	}
	shows := func(ask func(context.Context, string) (admin.Function, error), want api.State) <-chan seen {
		found := make(chan seen, 1)
		go func() {
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
				f, err := ask(ctx, "fake")
				if err != nil || len(f.Instances) == 1 && f.Instances[0].State == want {
					found <- seen{time.Now(), err}
					return
				}
			}
			found <- seen{err: fmt.Errorf("the function is not %s within a minute", want)}
		}()
		return found
	}
	for k := range n {
		want, order := api.Asleep, "sleep?level=1"
		if k%2 == 1 {
			want, order = api.Awake, "wake"
		}
		if err := d.cluster.Await(ctx, "fake", "quiet", child.Quiet); err != nil {
			return nil, err
		}
		near, far := shows(d.cluster.Function, want), shows(d.front.Function, want)
		if err := d.cluster.Order(ctx, "fake", order); err != nil {
			return nil, err
		}
		a, b := <-near, <-far
		if err := errors.Join(a.err, b.err); err != nil {
			return nil, err
		}
		late = append(late, max(0, report.Millis(b.at.Sub(a.at))))
	}
	return late, nil
}
