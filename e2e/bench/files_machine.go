package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
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

// The words that a machine's process says, a line each.
const (
	machineProgram = "machine" // the first argument that makes this program a machine

	saysReady = "it listens"
	saysHalf  = "it has half of the file"
	saysHas   = "it has all of the file, " // with this SHA-256
	// What the log says of a peer that spoils bytes, and of one that has another file.
	saysSpoils  = "a peer sends wrong bytes"
	saysDiffers = "a peer has sent another chunk"
)

// role configures the process of a machine.
type role struct {
	as     string // source, node, spoiler (a node that spoils what it sends) or liar (which has another file)
	at     string // where it listens
	dir    string // a node's cache
	file   string // what a source or a liar has
	ref    string // what a node fetches
	secret string
	peers  string
	sum    string // SHA-256 of the file that a liar claims to have
}

func (r *role) flags() *flag.FlagSet {
	f := flag.NewFlagSet("machine", flag.ContinueOnError)
	for name, v := range map[string]*string{"as": &r.as, "at": &r.at, "dir": &r.dir, "file": &r.file, "ref": &r.ref, "secret": &r.secret, "peers": &r.peers, "sum": &r.sum} {
		f.StringVar(v, name, *v, "")
	}
	return f
}

// line is the command line of a role.
func (r role) line() (args []string) {
	r.flags().VisitAll(func(f *flag.Flag) { args = append(args, "-"+f.Name+"="+f.Value.String()) })
	return append([]string{machineProgram}, args...)
}

// machine runs the process of a machine. It listens, fetches when it reads a line, and then ends.
func machine(ctx context.Context, args []string) error {
	var r role
	if err := r.flags().Parse(args); err != nil {
		return err
	}
	var h http.Handler
	var c *fetch.Cache
	var err error
	switch r.as {
	case "source":
		h = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, r.file) })
	case "liar":
		h, err = newLiar(r)
	default:
		c, err = fetch.New(fetch.Config{
			Dir: r.dir, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
			Share: fetch.Share{SecretFile: r.secret, Peers: strings.Split(r.peers, ","), Listen: r.at},
		})
		if err == nil {
			h, _ = c.Peers()
		}
		if r.as == "spoiler" {
			h = spoiler{h}
		}
	}
	if err != nil {
		return err
	}
	s := &http.Server{Addr: r.at, Handler: h, ReadHeaderTimeout: time.Minute, WriteTimeout: time.Minute}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = s.Close() }() // it ends anyway
	serving.Go(func() {
		if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, r.as, err)
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

// fetch fetches the file, says so, and reads it.
func (r role) fetch(ctx context.Context, c *fetch.Cache) error {
	var half sync.Once
	m, err := c.Fetch(ctx, r.ref, func(p fetch.Progress) {
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

// newLiar answers as a node that has the whole file, and has another one.
func newLiar(r role) (http.Handler, error) {
	secret, err := os.ReadFile(r.secret)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(r.file)
	if err != nil {
		return nil, err
	}
	f := &peers.File{Right: peers.NewRight(r.sum, ""), Size: info.Size(), Open: func() (*os.File, error) { return os.Open(r.file) }}
	var n *peers.Node
	n, err = peers.New(peers.Config{Group: bytes.TrimSpace(secret), Find: func(id string) *peers.File {
		if id != n.ID(f.Right) {
			return nil
		}
		return f
	}})
	return n, err
}

// spoiler changes a byte of each chunk that a node sends.
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
