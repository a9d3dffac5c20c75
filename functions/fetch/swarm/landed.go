package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// landed takes what came of a transfer.
func (d *download) landed(ctx context.Context, f *flight, b []byte, sum Sum, err error) {
	delete(d.flights, f)
	c := &d.chunks[f.chunk]
	c.flights--
	if f.peer != nil {
		f.peer.busy--
	} else {
		d.sources--
		d.asked = time.Now()
	}
	if f.void {
		return
	}
	took := time.Since(f.began)
	switch {
	case err != nil && f.peer != nil:
		d.failedPeer(f, err)
	case err != nil:
		d.failedSource(ctx, err)
	case f.peer == nil:
		d.failed = 0
		d.result.FromSource += int64(len(b))
		d.truth(f.chunk, b, sum)
		d.learn(took)
	default:
		f.peer.strikes = 0
		d.result.FromPeers += int64(len(b))
		if !c.have && !d.disputes[f.chunk] && d.vouched(f.chunk, sum) {
			d.take(f.chunk, b, sum, f.peer.addr)
		}
		d.learn(took)
	}
}

// learn averages how long transfers take.
func (d *download) learn(took time.Duration) {
	d.moved = time.Now()
	if d.mean == 0 {
		d.mean = took
	}
	d.mean += (took - d.mean) / 8
}

// take writes a chunk and says so; from is the peer that sent it, "" the source.
func (d *download) take(i int, b []byte, sum Sum, from string) {
	at, _ := d.mine.span(i)
	if _, err := d.job.File.WriteAt(b, at); err != nil {
		d.err = err
		return
	}
	c := &d.chunks[i]
	if !c.have {
		d.missing--
		d.got(int64(len(b)))
	}
	c.have, c.sum, c.proven, c.from = true, sum, from == "", from
	d.rewind(i)
	what := relayed
	if c.proven {
		what = proven
	}
	d.mine.say(i, what, sum)
	d.note(i, c)
	late := d.late()
	for f := range d.flights {
		if f.chunk != i {
			continue
		}
		f.stop()
		if f.peer != nil && time.Since(f.began) > late {
			d.strike(f.peer)
		}
	}
}

// strike leaves a peer that fails, or is slow, alone for a while.
func (d *download) strike(p *peer) {
	p.strikes++
	p.until = time.Now().Add(time.Second << min(p.strikes, 5) / 2)
}

func (d *download) got(n int64) {
	if d.job.Got != nil {
		d.job.Got(n)
	}
}

// truth takes a chunk as the source has it.
func (d *download) truth(i int, b []byte, sum Sum) {
	delete(d.disputes, i)
	if c := &d.chunks[i]; c.have && c.sum == sum {
		c.proven = true
		d.mine.say(i, proven, sum)
		d.note(i, c)
	} else {
		d.auditing = d.auditing && !c.have // the whole is another one now
		d.take(i, b, sum, "")
	}
	d.auditing = d.auditing && !d.allProven()
	for _, p := range d.peers {
		if cl := p.claims; cl != nil && p.vouches(i, cl[i].sum) && cl[i].sum != sum {
			d.convict(p, fmt.Sprintf("it vouches for a chunk %d that the source does not have", i))
		}
	}
}

// convict avoids a peer that has lied, and drops what only it vouched for.
func (d *download) convict(p *peer, reason string) {
	if p.convicted {
		return
	}
	p.convicted = true
	d.n.avoid(p.addr)
	d.result.Avoided = append(d.result.Avoided, p.addr)
	d.n.cfg.Logger.Warn("a peer that shares files lies: it is avoided", "peer", p.addr, "reason", reason, "sha256", d.job.SHA256)
	for f := range d.flights {
		if f.peer == p {
			f.stop()
		}
	}
	d.auditing = false
	for i := range d.chunks {
		if c := &d.chunks[i]; c.have && !c.proven && !d.vouched(i, c.sum) {
			d.drop(i)
		}
	}
	for i := range d.disputes { // without it there may be none
		delete(d.disputes, i)
		for _, o := range d.peers {
			if o.claims != nil {
				d.compare(o, i)
			}
		}
	}
	d.recount()
}

// allProven says whether every chunk came from the source.
func (d *download) allProven() bool {
	return !slices.ContainsFunc(d.chunks, func(c chunk) bool { return !c.proven })
}

// drop forgets a chunk.
func (d *download) drop(i int) {
	c := &d.chunks[i]
	_, n := d.mine.span(i)
	c.have, c.proven, c.from = false, false, ""
	d.missing++
	d.got(-n)
	d.rewind(i)
	d.mine.say(i, lost, Sum{})
	d.note(i, c)
}

// failedPeer is a transfer from a peer that brought nothing of use.
func (d *download) failedPeer(f *flight, err error) {
	p := f.peer
	switch {
	case errors.Is(err, errWrong), errors.Is(err, errSeal):
		d.convict(p, fmt.Sprintf("of chunk %d %v", f.chunk, err))
	case errors.Is(err, errBusy):
		p.until = time.Now().Add(tick)
	case errors.Is(err, errNothing):
		if cl := &p.claims[f.chunk]; cl.there && cl.sum == f.sum {
			cl.there = false
			d.holders[f.chunk]--
		}
	default:
		d.strike(p)
		d.n.cfg.Logger.Info("a peer that shares files fails", "peer", p.addr, "error", err)
	}
}

// failedSource waits until the source may be asked again.
func (d *download) failedSource(ctx context.Context, err error) {
	if d.retries || d.dead != nil {
		return // another transfer's failure is being waited for
	}
	d.failed++
	d.retries = true
	failures := d.failed
	d.wg.Go(func() {
		err := d.job.Again(ctx, failures, err)
		d.do(ctx, func() { d.retries, d.dead = false, err })
	})
}
