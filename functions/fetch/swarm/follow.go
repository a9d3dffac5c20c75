package swarm

import (
	"context"
	"errors"
	"slices"
	"time"
)

// lookupEvery is how often peers are looked up, and followAgain how long after a peer's failure it is asked again.
const (
	lookupEvery = 5 * time.Second
	followAgain = 50 * time.Millisecond
)

// lookup follows the peers that are there, until ctx ends.
func (d *download) lookup(ctx context.Context) {
	for {
		addrs, err := d.n.cfg.Peers(ctx)
		if err != nil {
			d.n.cfg.Logger.Warn("looking up who shares files", "error", err)
		}
		d.do(ctx, func() { d.meet(ctx, addrs) })
		select {
		case <-time.After(lookupEvery):
		case <-ctx.Done():
			return
		}
	}
}

// meet begins to follow those that are new. Who is no longer among them is followed as long as it answers.
func (d *download) meet(ctx context.Context, addrs []string) {
	if d.peers == nil {
		d.peers = []*peer{}
	}
	for _, addr := range addrs {
		if len(d.peers) == maxPeers || slices.ContainsFunc(d.peers, func(p *peer) bool { return p.addr == addr }) {
			continue
		}
		p := &peer{addr: addr, begun: map[int]time.Time{}}
		if d.n.avoided(addr) {
			p.convicted, p.asked = true, true
			d.peers = append(d.peers, p)
			continue
		}
		d.peers = append(d.peers, p)
		d.wg.Go(func() { d.follow(ctx, p) })
	}
}

// maxPeers bounds how many peers are followed.
const maxPeers = 64

// follow asks for a peer's news until ctx ends, or the peer turns out to be none.
func (d *download) follow(ctx context.Context, p *peer) {
	var last page
	pause := followAgain
	for {
		pg, err := d.n.askLog(ctx, p.addr, d.mine.key, last)
		more := make(chan bool, 1)
		d.do(ctx, func() { more <- d.heard(p, pg, err) })
		select {
		case again := <-more:
			if !again {
				return
			}
		case <-ctx.Done():
			return
		}
		if err == nil {
			last, pause = pg, followAgain
			last.Entries = nil
			continue
		}
		if errors.Is(err, errNothing) { // it may begin at any time
			pause = min(pause, 10*followAgain)
		}
		last = page{}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lookupEvery)
	}
}

// heard takes a peer's news. It is false if the peer is not to be followed any more.
func (d *download) heard(p *peer, pg page, err error) bool {
	first := !p.asked
	p.asked = true
	if err != nil {
		if errors.Is(err, errSeal) || errors.Is(err, errMakes) {
			d.convict(p, err.Error())
			return false
		}
		if p.alive {
			p.alive = false
			d.recount()
		}
		return !p.convicted
	}
	switch {
	case p.convicted:
		return false
	case pg.Node == d.name: // ourselves
		p.convicted = true
		return false
	case pg.Size != d.mine.size || pg.Chunk != d.mine.chunk:
		d.n.cfg.Logger.Warn("a peer cuts a file in another way: it is not asked", "peer", p.addr, "chunk", pg.Chunk, "size", pg.Size)
		p.convicted = true
		return false
	}
	if first || !p.alive || p.name != pg.Node || p.log != pg.Log || p.claims == nil || p.whole != pg.Whole {
		if p.log != pg.Log || p.claims == nil {
			p.claims, p.whole = make([]claim, len(d.chunks)), false
			clear(p.begun)
		}
		p.alive, p.name, p.log = true, pg.Node, pg.Log
		d.recount()
	}
	d.read(p, pg)
	return !p.convicted
}

// read takes in the entries of a peer's log.
func (d *download) read(p *peer, pg page) {
	for _, e := range pg.Entries {
		if e.Chunk < 0 || e.Chunk >= len(d.chunks) {
			continue
		}
		cl := &p.claims[e.Chunk]
		switch {
		case e.What == begun:
			p.begun[e.Chunk] = time.Now()
		case (e.What == proven || e.What == relayed) && e.Sum != nil:
			if !cl.there {
				d.holders[e.Chunk]++
			}
			delete(p.begun, e.Chunk)
			*cl = claim{there: true, proven: e.What == proven, sum: *e.Sum}
			d.check(p, e.Chunk)
		case e.What == lost && cl.there:
			d.holders[e.Chunk]--
			*cl = claim{}
		}
		if p.convicted {
			return
		}
	}
	if pg.Whole && !p.whole {
		p.whole = true
		for i := range p.claims {
			d.check(p, i)
		}
	}
}

// check compares what a peer vouches for with what others do.
func (d *download) check(p *peer, i int) {
	if !p.convicted && p.claims[i].there && d.compare(p, i) {
		d.convict(p, "it vouches for another content of a chunk than the source has")
	}
}
