package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/process"
)

// doors are a cluster, and a front door that it has joined.
type doors struct{ cluster, front *Up }

func (d *doors) stop() {
	d.cluster.Stop()
	d.front.Stop()
}

func (b *localBench) startDoors(ctx context.Context) (*doors, error) {
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	at := "127.0.0.1:" + port
	dir := filepath.Join(b.dir, "front")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	certificate, key, err := SelfSigned()
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
	if d.front, err = StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: dir, Args: []string{"--no-gpu", "--clusters", in("clusters.yaml")}}); err != nil {
		return nil, err
	}
	d.cluster, err = StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: b.dir, Manifest: b.fake(),
		Args: []string{"--no-gpu", "--join", at, "--cluster", "desk", "--cluster-token-file", in("token"), "--front-ca", in("cert.pem")}})
	if err != nil {
		d.front.Stop()
		return nil, err
	}
	patient, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the cluster does not come to the front door"))
	defer cancel()
	if err := await(patient, 10*time.Millisecond, func() (bool, error) { // it is not known at first
		_, err := d.front.Function(ctx, "fake")
		return err == nil, nil
	}); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

func (b *localBench) door(ctx context.Context) ([]report.Measurement, error) {
	d, err := b.startDoors(ctx)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	bare, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	return b.hops(ctx, []hop{bare,
		{name: "the cluster's rouse up", Client: d.cluster.Door, programs: []*Process{d.cluster.Process}},
		{"a front door", d.front.Door, []*Process{d.cluster.Process, d.front.Process}, gates{added: 600, share: 0.25}},
	}, loads, "fake", againstFake)
}
