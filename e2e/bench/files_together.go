package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// together compares the time in which many caches fetch a file with the time of one, and counts the bytes that the
// source sends.
func together(ctx context.Context, o fileOptions, add func(...report.Measurement)) error {
	content := make([]byte, o.size<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	for _, faster := range []int{2, 1} {
		links := o.rate * faster
		var one, all, sent []float64
		for range o.reps {
			alone, err := fetchAll(ctx, o, links, content, 1)
			if err != nil {
				return err
			}
			many, err := fetchAll(ctx, o, links, content, o.nodes)
			if err != nil {
				return err
			}
			one, all = append(one, alone.took.Seconds()), append(all, many.took.Seconds())
			sent = append(sent, float64(many.sent)/float64(len(content)))
		}
		what := fmt.Sprintf("a file of %d MiB from a source of %d MiB/s, links of %d MiB/s each way", o.size, o.rate, links)
		name := fmt.Sprintf("%d caches at once, links %d x as fast as the source", o.nodes, faster)
		m := report.Compare(report.Measurement{Name: name, What: what + ": until the last one has it", Unit: "s", Against: "one cache alone"}, all, one)
		if faster > 1 {
			m = m.Gated(m.Ratio <= 1.3, "at most 1.3 x of one")
		}
		add(m)
		s := report.Measurement{Name: name + ": sent by the source", What: what, Unit: "copies", N: o.reps, Rouse: report.Summarise(sent)}
		add(s.Gated(s.Rouse.P95 <= 1.2, "at most 1.2 copies"))
	}
	return nil
}

// outcome of a fetch.
type outcome struct {
	took time.Duration
	sent int64 // by the source
}

// fetchAll lets n caches fetch the content at once.
func fetchAll(ctx context.Context, o fileOptions, links int, content []byte, n int) (outcome, error) {
	dir, err := os.MkdirTemp("", "bench-files")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret of this benchmark"), 0o600); err != nil {
		return outcome{}, err
	}
	var sent atomic.Int64
	source, err := newLink(o.rate << 20).listen()
	if err != nil {
		return outcome{}, err
	}
	var servers []*http.Server
	var serving sync.WaitGroup
	serve := func(l net.Listener, h http.Handler) {
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		servers = append(servers, s)
		serving.Go(func() { _ = s.Serve(l) }) // until it is closed
	}
	defer func() {
		for _, s := range servers {
			_ = s.Close() // it ends anyway
		}
		serving.Wait()
	}()
	serve(source, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(counting{w, &sent}, r, "", time.Time{}, bytes.NewReader(content))
	}))
	caches, err := connect(dir, secret, links<<20, n, serve)
	if err != nil {
		return outcome{}, err
	}
	ref := fmt.Sprintf("http://%s/m.gguf#sha256=%x", source.Addr(), sha256.Sum256(content))
	failed := make([]error, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range caches {
		wg.Go(func() {
			m, err := c.Fetch(ctx, ref, nil)
			m.Release()
			failed[i] = err
		})
	}
	wg.Wait()
	return outcome{time.Since(began), sent.Load()}, errors.Join(failed...)
}

// connect makes n caches behind links, which know one another.
func connect(dir, secret string, rate, n int, serve func(net.Listener, http.Handler)) ([]*fetch.Cache, error) {
	links := make([]*link, n)
	doors := make([]net.Listener, n)
	var peers []string
	for i := range n {
		links[i] = newLink(rate)
		var err error
		if doors[i], err = links[i].listen(); err != nil {
			return nil, err
		}
		peers = append(peers, doors[i].Addr().String())
	}
	var caches []*fetch.Cache
	for i := range n {
		client := &http.Client{Transport: &http.Transport{DialContext: links[i].dial, MaxIdleConnsPerHost: 8}}
		c, err := fetch.New(fetch.Config{
			Dir: filepath.Join(dir, fmt.Sprint(i)), Client: client, Share: fetch.Share{SecretFile: secret, Peers: peers, Client: client},
		})
		if err != nil {
			return nil, err
		}
		h, _ := c.Peers()
		serve(doors[i], h)
		caches = append(caches, c)
	}
	return caches, nil
}

// counting counts the bytes sent of a content.
type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}
