package jobs

import (
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator"
)

// gate divides a model's spare slots evenly among the batches with lines for it. It is safe for concurrent use. The zero
// value is empty.
type gate struct {
	mu     sync.Mutex // guards models, and what the members have
	models map[string]map[*batchLines]struct{}
}

// batchLines is a batch's lines for one model.
type batchLines struct {
	model    string
	deadline time.Time // of the batch
	left     int       // lines without a result
	behind   int       // of these, sent in the background
}

func (g *gate) addBatch(model string, deadline time.Time, left int) *batchLines {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.models == nil {
		g.models = map[string]map[*batchLines]struct{}{}
	}
	if g.models[model] == nil {
		g.models[model] = map[*batchLines]struct{}{}
	}
	m := &batchLines{model: model, deadline: deadline, left: left}
	g.models[model][m] = struct{}{}
	return m
}

func (g *gate) removeBatch(m *batchLines) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.models[m.model]
	if delete(all, m); len(all) == 0 {
		delete(g.models, m.model)
	}
}

func (g *gate) lineAnswered(m *batchLines) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.left--
}

// linesBefore returns how many lines of the model are due no later than m's.
func (g *gate) linesBefore(m *batchLines) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other := range g.models[m.model] {
		if !other.deadline.After(m.deadline) {
			n += other.left
		}
	}
	return n
}

func (g *gate) admitLines(m *batchLines, room activator.Room, want int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all, behind := g.models[m.model], 0
	for other := range all {
		behind += other.behind
	}
	// Admitted lines may not have their slots yet.
	free := min(room.Free, room.Slots-behind) - reserved(room.Slots)
	share := (max(free, 0) + behind + len(all) - 1) / len(all)
	n := max(0, min(want, free, share-m.behind))
	m.behind += n
	return n
}

func (g *gate) lineLeft(m *batchLines) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.behind--
}

// reserved returns how many slots stay free for clients that wait.
func reserved(slots int) int {
	if slots <= 1 {
		return 0
	}
	return max(1, slots/8)
}
