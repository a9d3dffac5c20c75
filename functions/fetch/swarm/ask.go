package swarm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxPage bounds a sealed page of a log.
const maxPage = 4 << 20

// What a peer that does not give what it is asked for says.
var (
	errNothing = errors.New("it does not have it")
	errBusy    = errors.New("it is busy")
	errMakes   = errors.New("its log makes no sense")
)

// ask asks a peer, and opens its answer.
func (n *Node) ask(ctx context.Context, addr string, key Key, path, question string, most int64) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(n.cfg.Stall+waitLog, func() { cancel(fmt.Errorf("it brought nothing for %s", n.cfg.Stall)) })
	defer stall.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+Prefix+key.id()+"/"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("the peer's address: %w", err)
	}
	resp, err := n.cfg.Client.Do(req)
	if err != nil {
		return nil, why(ctx, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, errNothing
	case http.StatusServiceUnavailable:
		return nil, errBusy
	default:
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	sealed, err := readAll(&Lively{resp.Body, stall, n.cfg.Stall}, resp.ContentLength, most+64)
	if err != nil {
		return nil, why(ctx, err)
	}
	return key.unseal(question, sealed)
}

// why is why ctx ended, if it has, and else err.
func why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Lively is the body of an answer, each part of which puts off the end for want of any.
type Lively struct {
	io.Reader
	// Stall ends the request, and is set to Limit again by each part.
	Stall *time.Timer
	Limit time.Duration
}

// Read implements [io.Reader].
func (l *Lively) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if n > 0 {
		l.Stall.Reset(l.Limit)
	}
	return n, err
}

// readAll reads an answer of a length, -1 if it does not say, that has most bytes at most.
func readAll(r io.Reader, length, most int64) ([]byte, error) {
	if length > most {
		return nil, fmt.Errorf("its answer is longer than %d bytes", most)
	}
	var b bytes.Buffer
	if length > 0 {
		b.Grow(int(length) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(r, most+1))
	if err == nil && n > most {
		return nil, fmt.Errorf("its answer is longer than %d bytes", most)
	}
	return b.Bytes(), err
}

// askLog asks for what is new in a peer's log of a file; it waits at the peer until there is something, for waitLog.
func (n *Node) askLog(ctx context.Context, addr string, key Key, from page) (page, error) {
	query := url.Values{"log": {from.Log}, "after": {strconv.Itoa(from.Next)}}
	if from.Whole {
		query.Set("whole", "1")
	}
	text, err := n.ask(ctx, addr, key, "log?"+query.Encode(), "log", maxPage)
	if err != nil {
		return page{}, err
	}
	var p page
	if json.Unmarshal(text, &p) != nil {
		return page{}, errMakes
	}
	return p, nil
}

// askChunk asks for a chunk, by its sum too: the peer may have got another content since it said what it has.
func (n *Node) askChunk(ctx context.Context, addr string, key Key, f *flight, size int64) ([]byte, error) {
	b, err := n.ask(ctx, addr, key, fmt.Sprintf("%d?sum=%x", f.chunk, f.sum), question(f.chunk), size)
	if err == nil && (int64(len(b)) != size || sha256.Sum256(b) != f.sum) {
		return nil, errWrong
	}
	return b, err
}

// errWrong says that a peer sent something else than its log says.
var errWrong = errors.New("it sent another content than its own log says")
