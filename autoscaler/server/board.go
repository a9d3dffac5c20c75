package server

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

const (
	settle    = 50 * time.Millisecond // events within this time count as one change
	sweep     = 2 * time.Second       // events may be lost, and some changes have none
	mostNamed = 100                   // if more functions are marked, all are read
	mostMade  = 300                   // decisions kept for readers
	mostGone  = 1000                  // removed functions kept on the board
)

// board holds what all readers of a stream see, each item with the version of its last change. Two goroutines update it
// while there is a reader. It is safe for concurrent use.
type board struct {
	server *Admin

	joining sync.Mutex // guards readers, stop and ended; held while a reader joins or leaves; taken before mu
	readers int
	stop    context.CancelFunc
	ended   sync.WaitGroup

	mu        sync.Mutex    // guards all below
	version   uint64        // of the last change
	changed   chan struct{} // closed at the next change
	functions map[api.FunctionName]*list.Element
	order     *list.List // of *shown, the latest change last
	devices   []byte
	devicesAt uint64
	decisions []made
	dirty     map[api.FunctionName]bool
	told      uint64 // the version at which readers were last woken
	gone      int    // removed functions on the board
	forgotten uint64 // the version at which removed functions were last dropped
}

// shown's raw is nil if the function was removed.
type shown struct {
	name api.FunctionName
	raw  json.RawMessage
	at   uint64
}

type made struct {
	raw json.RawMessage
	at  uint64
}

type news struct {
	version   uint64
	whole     bool
	functions []json.RawMessage
	gone      []api.FunctionName
	devices   json.RawMessage
	decisions []json.RawMessage
}

// clear empties the board. Versions continue.
func (b *board) clear() {
	b.changed, b.functions, b.order = make(chan struct{}), map[api.FunctionName]*list.Element{}, list.New()
	b.devices, b.decisions, b.dirty, b.gone = nil, nil, map[api.FunctionName]bool{}, 0
}

// join returns false if there are too many readers.
func (b *board) join() (leave func(), ok bool) {
	b.joining.Lock()
	defer b.joining.Unlock()
	if b.readers == maxReaders {
		return nil, false
	}
	if b.readers++; b.readers == 1 {
		ctx, stop := context.WithCancel(context.Background())
		b.stop = stop
		dirty := bell.New()
		b.ended.Go(func() {
			_ = b.server.cfg.Events.Follow(ctx, cloudevent.Kept, true, func(e api.Event) error { // only ctx ends it
				b.note(e)
				dirty.Ring()
				return nil
			})
		})
		b.refresh(ctx, nil)
		b.ended.Go(func() { b.keepUp(ctx, dirty) })
	}
	return b.leave, true
}

func (b *board) leave() {
	b.joining.Lock()
	defer b.joining.Unlock()
	if b.readers--; b.readers == 0 {
		b.stop()
		b.ended.Wait()
		b.mu.Lock()
		b.clear()
		b.mu.Unlock()
	}
}

func (b *board) note(e api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty[api.FunctionName(e.Subject)] = true
	if e.Type != api.EventDecision {
		return
	}
	if len(b.decisions) >= mostMade {
		b.decisions = slices.Delete(b.decisions, 0, mostMade/10)
	}
	b.version++
	b.decisions = append(b.decisions, made{e.Data, b.version}) // readers get it with the change that follows
}

func (b *board) keepUp(ctx context.Context, dirty bell.Bell) {
	sweeps := time.NewTicker(sweep)
	defer sweeps.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweeps.C:
			b.refresh(ctx, nil)
		case <-dirty:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
			b.refresh(ctx, b.marked())
		}
	}
}

// marked takes the marked names; nil: too many.
func (b *board) marked() []api.FunctionName {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.AppendSeq([]api.FunctionName{}, maps.Keys(b.dirty))
	clear(b.dirty)
	if len(names) > mostNamed {
		return nil
	}
	return names
}

// refresh reads the named functions, nil: all, and wakes readers of changes.
func (b *board) refresh(ctx context.Context, names []api.FunctionName) {
	all, gone := b.server.look(ctx, names)
	devices, err := json.Marshal(b.server.cfg.Decider.Devices())
	if ctx.Err() != nil || err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[api.FunctionName]bool, len(all))
	for _, f := range all {
		there[f.Name] = true
		if raw, err := json.Marshal(f); err == nil {
			b.put(f.Name, raw)
		}
	}
	if names == nil {
		for name := range b.functions {
			if !there[name] {
				gone = append(gone, name)
			}
		}
	}
	for _, name := range gone {
		b.put(name, nil)
	}
	if !bytes.Equal(devices, b.devices) {
		b.version++
		b.devices, b.devicesAt = devices, b.version
	}
	if b.gone > mostGone {
		b.forget()
	}
	if b.version != b.told {
		b.told = b.version
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// put keeps a removed function, raw nil, for readers that have not been told. The caller holds mu.
func (b *board) put(name api.FunctionName, raw json.RawMessage) {
	at, known := b.functions[name]
	if known && bytes.Equal(at.Value.(*shown).raw, raw) || !known && raw == nil {
		return
	}
	b.version++
	switch {
	case raw == nil:
		b.gone++
	case known && at.Value.(*shown).raw == nil:
		b.gone--
	}
	if !known {
		b.functions[name] = b.order.PushBack(&shown{name, raw, b.version})
		return
	}
	at.Value = &shown{name, raw, b.version}
	b.order.MoveToBack(at)
}

// forget drops removed functions: readers that were not told get everything. The caller holds mu.
func (b *board) forget() {
	for name, at := range b.functions {
		if at.Value.(*shown).raw == nil {
			b.order.Remove(at)
			delete(b.functions, name)
		}
	}
	b.gone, b.forgotten = 0, b.version
}

// since returns the changes after a version; the channel is closed at the next.
func (b *board) since(version uint64) (news, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if version < b.forgotten {
		version = 0
	}
	n := news{version: b.version, whole: version == 0}
	for at := b.order.Back(); at != nil && at.Value.(*shown).at > version; at = at.Prev() {
		switch f := at.Value.(*shown); {
		case f.raw != nil:
			n.functions = append(n.functions, f.raw)
		case !n.whole:
			n.gone = append(n.gone, f.name)
		}
	}
	if b.devicesAt > version {
		n.devices = b.devices
	}
	for _, d := range b.decisions {
		if d.at > version {
			n.decisions = append(n.decisions, d.raw)
		}
	}
	return n, b.changed
}
