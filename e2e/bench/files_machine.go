package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/fetch/peers"
)

const (
	machineProgram = "machine" // the first argument that makes this program a machine

	saysReady   = "it listens"
	saysHalf    = "it has half of the file"
	saysHas     = "it has all of the file, " // with this SHA-256
	saysSpoils  = "a peer sends wrong bytes"
	saysDiffers = "a peer has sent another chunk"
)

// role configures a machine, as JSON in its argument.
type role struct {
	As     string // source, node, spoiler (spoils what it sends) or liar (has another file)
	At     string
	Dir    string // a node's cache
	File   string // what a source or a liar has
	Ref    string // what a node fetches
	Secret string
	Peers  []string
	Sum    string // of the file that a liar claims to have
}

// machine listens, fetches when it reads a line, and then ends.
func machine(ctx context.Context, args []string) error {
	var r role
	if err := json.Unmarshal([]byte(strings.Join(args, " ")), &r); err != nil {
		return err
	}
	var h http.Handler
	var c *fetch.Cache
	var err error
	switch r.As {
	case "source":
		h = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, r.File) })
	case "liar":
		h, err = newLiar(r)
	default:
		c, err = fetch.New(fetch.Config{
			Dir: r.Dir, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
			Share: fetch.Share{SecretFile: r.Secret, Peers: r.Peers, Listen: r.At},
		})
		if err == nil {
			h, _ = c.Peers()
		}
		if r.As == "spoiler" {
			h = spoiler{h}
		}
	}
	if err != nil {
		return err
	}
	s := &http.Server{Addr: r.At, Handler: h, ReadHeaderTimeout: time.Minute, WriteTimeout: time.Minute}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = s.Close() }() // it ends anyway
	serving.Go(func() {
		if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, r.As, err)
		}
	})
	fmt.Println(saysReady)
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // it was not wanted
	}
	if c != nil {
		if err := r.fetch(ctx, c); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

func (r role) fetch(ctx context.Context, c *fetch.Cache) error {
	var half sync.Once
	m, err := c.Fetch(ctx, r.Ref, func(p fetch.Progress) {
		if p.Total > 0 && 2*p.Done >= p.Total {
			half.Do(func() { fmt.Println(saysHalf) })
		}
	})
	if err != nil {
		return err
	}
	defer m.Release()
	b, err := os.ReadFile(m.Path)
	if err != nil {
		return err
	}
	fmt.Printf("%s%x\n", saysHas, sha256.Sum256(b))
	return nil
}

// newLiar answers as a node that has the file, and has another one.
func newLiar(r role) (http.Handler, error) {
	secret, err := os.ReadFile(r.Secret)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(r.File)
	if err != nil {
		return nil, err
	}
	f := &peers.File{Right: peers.NewRight(r.Sum, ""), Size: info.Size(), Open: func() (*os.File, error) { return os.Open(r.File) }}
	var n *peers.Node
	n, err = peers.New(peers.Config{Group: bytes.TrimSpace(secret), Find: func(id string) *peers.File {
		if id != n.ID(f.Right) {
			return nil
		}
		return f
	}})
	return n, err
}

// spoiler changes a byte of each chunk.
type spoiler struct{ http.Handler }

func (s spoiler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/state") {
		w = spoiled{w}
	}
	s.Handler.ServeHTTP(w, r)
}

type spoiled struct{ http.ResponseWriter }

func (s spoiled) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return s.ResponseWriter.Write(b)
}
