package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// firstFD is the descriptor of [Process.Files]' first file, the shared memory.
const firstFD = 4

// Group launches n processes that compute one model as one worker. Every rank gets every batch and op, and all sample
// the same tokens. If one ends, all end.
func Group(n int, p Process) Launch {
	return func(ctx context.Context) (Running, error) {
		memory, err := sharedMemory()
		if err != nil {
			return nil, err
		}
		defer memory.Close()
		p.Files = append(slices.Clip(p.Files[:0]), memory)
		g := &group{in: make(chan arrival), gone: make(chan struct{}), replies: map[uint64]*gathered{}, beats: make([]int, n)}
		for rank := range n {
			r, err := p.Launch(ctx)
			if err != nil {
				g.Kill()
				return nil, errors.Join(fmt.Errorf("rank %d: %w", rank, err), g.Wait())
			}
			g.ranks = append(g.ranks, r)
		}
		for rank, r := range g.ranks {
			g.readers.Go(func() { g.read(rank, r) })
		}
		return g, nil
	}
}

type arrival struct {
	rank    int
	kind    Kind
	payload []byte
	err     error
}

type gathered struct {
	Reply
	n int // ranks that have replied
}

// group is the ranks of one model. The goroutine that calls Receive owns replies and beats.
type group struct {
	ranks   []Running
	in      chan arrival  // the readers send
	gone    chan struct{} // closed by Close
	once    sync.Once
	readers sync.WaitGroup

	replies map[uint64]*gathered // by op ID
	beats   []int                // per rank, not passed on yet
}

func (g *group) read(rank int, r Running) {
	for {
		kind, payload, err := r.Receive()
		select {
		case g.in <- arrival{rank, kind, slices.Clone(payload), err}:
		case <-g.gone:
			return
		}
		if err != nil {
			return
		}
	}
}

func (g *group) Send(kind Kind, payload []byte) error {
	for rank, r := range g.ranks {
		mine := payload
		if kind == KindOp {
			var err error
			if mine, err = g.address(rank, payload); err != nil {
				return err
			}
		}
		if err := r.Send(kind, mine); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

func (g *group) address(rank int, payload []byte) ([]byte, error) {
	var op Op
	if err := DecodeJSON(payload, &op); err != nil {
		return nil, err
	}
	if op.Load == nil {
		return payload, nil
	}
	op.Load.Rank, op.Load.Of, op.Load.Memory = rank, len(g.ranks), firstFD
	return EncodeJSON(op)
}

func (g *group) Receive() (Kind, []byte, error) {
	for {
		var a arrival
		select {
		case a = <-g.in:
		case <-g.gone:
			return 0, nil, errClosed
		}
		if a.err != nil {
			return 0, nil, a.err
		}
		payload, whole, err := g.merge(a)
		if err != nil {
			return 0, nil, fmt.Errorf("rank %d: %w", a.rank, err)
		}
		if whole {
			return a.kind, payload, nil
		}
	}
}

// merge makes one frame of all ranks'; whole: a completes it.
func (g *group) merge(a arrival) (payload []byte, whole bool, err error) {
	switch a.kind {
	case KindHello:
		var h Hello
		if err := DecodeJSON(a.payload, &h); err != nil {
			return nil, false, fmt.Errorf("its hello: %w", err)
		}
		if h.Protocol != Protocol {
			return nil, false, fmt.Errorf("its protocol version is %d, the engine's is %d: use the same version for both", h.Protocol, Protocol)
		}
	case KindHeartbeat: // the group is alive if all ranks are
		g.beats[a.rank]++
		if slices.Min(g.beats) == 0 {
			return nil, false, nil
		}
		clear(g.beats)
		return nil, true, nil
	case KindReply:
		return g.gather(a)
	}
	return a.payload, a.rank == 0, nil
}

// gather takes any rank's error, and rank 0's answer.
func (g *group) gather(a arrival) (payload []byte, whole bool, err error) {
	var r Reply
	if err := DecodeJSON(a.payload, &r); err != nil {
		return nil, false, err
	}
	all := g.replies[r.ID]
	if all == nil {
		all = &gathered{Reply: Reply{ID: r.ID}}
		g.replies[r.ID] = all
	}
	all.n++
	all.Memory += r.Memory
	if all.Error == "" && r.Error != "" {
		all.Error = fmt.Sprintf("rank %d: %s", a.rank, r.Error)
	}
	if a.rank == 0 {
		all.Info = r.Info
	}
	if all.n < len(g.ranks) {
		return nil, false, nil
	}
	delete(g.replies, r.ID)
	payload, err = EncodeJSON(all.Reply)
	return payload, true, err
}

func (g *group) Close() {
	g.once.Do(func() { close(g.gone) })
	for _, r := range g.ranks {
		r.Close()
	}
}

func (g *group) Kill() {
	g.Close()
	for _, r := range g.ranks {
		r.Kill()
	}
}

// Wait returns the first rank's error.
func (g *group) Wait() error {
	var first error
	for rank, r := range g.ranks {
		if err := r.Wait(); err != nil && first == nil {
			first = fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	g.readers.Wait()
	return first
}

func (g *group) PIDs() (pids []int) {
	for _, r := range g.ranks {
		pids = append(pids, r.PIDs()...)
	}
	return pids
}
