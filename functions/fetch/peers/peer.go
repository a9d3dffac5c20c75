package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/internal/bell"
)

const (
	maxPeers     = 64
	maxState     = 256 << 10
	lookupEvery  = 5 * time.Second
	askEvery     = 300 * time.Millisecond // between questions for a peer's state
	answerWithin = 5 * time.Second        // a slower peer is gone
)

// peer is another node, for a download.
type peer struct {
	addr  string
	state *state             // the last report; nil: it lacks the file, or does not answer
	ctx   context.Context    // ends when it stops answering
	stop  context.CancelFunc // nil: ctx has ended
	out   bool               // distrusted, or this node
	busy  int
	until time.Time // not asked before
	fails bool      // the last transfer failed
}

func (p *peer) usable() bool { return p.state != nil && !p.out }

func (p *peer) has(i int) bool { return p.usable() && (p.state.Whole || p.state.Have.has(i)) }

func (p *peer) fetches() bool { return p.usable() && !p.state.Whole }

// lookup looks up the peers and follows each.
func (d *download) lookup(ctx context.Context) {
	for {
		addrs, err := d.n.cfg.Peers(ctx)
		if err != nil {
			d.n.cfg.Logger.Warn("peers look-up failed", "error", err)
		}
		d.do(ctx, func() {
			d.peers = append([]*peer{}, d.peers...) // not nil any more
			for _, addr := range addrs {
				if len(d.peers) < maxPeers && !slices.ContainsFunc(d.peers, func(p *peer) bool { return p.addr == addr }) {
					p := &peer{addr: addr}
					d.peers = append(d.peers, p)
					d.wg.Go(func() { d.follow(ctx, p) })
				}
			}
		})
		if bell.Sleep(ctx, lookupEvery) != nil {
			return
		}
	}
}

func (d *download) follow(ctx context.Context, p *peer) {
	for more := true; more; more = bell.Sleep(ctx, askEvery) == nil {
		s, err := d.n.askState(ctx, p.addr, d.mine.key)
		d.do(ctx, func() {
			p.state = s
			switch {
			case errors.Is(err, errSeal):
				d.distrust(p, err)
			case err == nil && s.Node == d.n.name:
				p.out = true // this node
			case err == nil && p.stop == nil:
				p.ctx, p.stop = context.WithCancel(ctx)
			case err != nil && p.stop != nil:
				p.stop()
				p.stop = nil
			}
		})
	}
}

func (n *Node) askState(ctx context.Context, addr string, key key) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, n.answerWithin)
	defer cancel()
	text, err := n.ask(ctx, addr, key, aboutState, maxState)
	if err != nil {
		return nil, err
	}
	s := &state{}
	if json.Unmarshal(text, s) != nil {
		return nil, errSeal
	}
	s.Begun = s.Begun[:min(len(s.Begun), fromSource)]
	return s, nil
}

func (n *Node) askChunk(ctx context.Context, addr string, key key, i int, size int64) ([]byte, error) {
	b, err := n.ask(ctx, addr, key, strconv.Itoa(i), size)
	if err == nil && int64(len(b)) != size {
		return nil, errSeal
	}
	return b, err
}

// ask returns the unsealed answer, of most bytes, to what: aboutState or a chunk's number.
func (n *Node) ask(ctx context.Context, addr string, key key, what string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+Prefix+key.id()+"/"+what, nil)
	if err != nil {
		return nil, fmt.Errorf("the peer's address: %w", err)
	}
	resp, err := n.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the peer answers %s", resp.Status)
	}
	most += overhead
	var sealed bytes.Buffer
	sealed.Grow(int(min(max(resp.ContentLength, 0), most)) + bytes.MinRead)
	if _, err := sealed.ReadFrom(io.LimitReader(resp.Body, most)); err != nil {
		return nil, err
	}
	return key.unseal(what, sealed.Bytes())
}
