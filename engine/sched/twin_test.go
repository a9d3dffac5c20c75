package sched_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

// twin is the obvious scheduler: one list of sequences, which it sorts and searches again for each question. It
// guesses nothing.
type twin struct {
	cfg             sched.Config
	patience, aging int // 0: as the scheduler's
	pool            *block.Pool
	all             []*twinSeq // unfinished ones, by arrival
	arrived         int
	flows           map[string]int // virtual times, by priority and tenant
	clocks          map[int]int    // by priority
	turns           int
	waited          int
	step            int
	flights         [][]twinEntry
	ends            []sched.ID
	items           []string
	chosen          []*twinSeq // of the items
	copies          []sched.Copy
	tokens          int
	stats           sched.Stats
}

type twinSeq struct {
	id                     sched.ID
	req                    sched.Request
	order, since           int
	rank                   int
	tokens                 []int32
	blocks                 []int32
	computed, flying, high int
	sent, named            int
	running, seen, gone    bool
	step, from             int
	group                  *twinGroup
}

type twinGroup struct {
	members []*twinSeq
	leader  *twinSeq
	parked  map[*twinSeq]bool
}

type twinEntry struct{ q *twinSeq }

const first = math.MinInt

func newTwin(cfg sched.Config, count, size int) *twin {
	return &twin{cfg: cfg, pool: block.New(count, size), flows: map[string]int{}, clocks: map[int]int{}}
}

func flowOf(q *twinSeq) string { return fmt.Sprint(q.req.Priority, q.req.Tenant) }

func (w *twin) add(r sched.Request) {
	g := &twinGroup{parked: map[*twinSeq]bool{}}
	probe := &twinSeq{req: r}
	waits := slices.ContainsFunc(w.all, func(q *twinSeq) bool {
		return !q.running && !q.parked() && q.rank != first && flowOf(q) == flowOf(probe)
	})
	if t, ok := w.flows[flowOf(probe)]; !ok || !waits {
		w.flows[flowOf(probe)] = max(t, w.clocks[r.Priority])
	}
	for i := range max(1, r.Siblings) {
		q := &twinSeq{id: r.ID + sched.ID(i), req: r, order: w.arrived, since: w.step, rank: r.Priority, tokens: slices.Clone(r.Prompt)}
		w.arrived++
		if r.Siblings > 1 && len(r.Prompt) > 1 {
			q.group = g
			g.members = append(g.members, q)
		}
		w.all = append(w.all, q)
	}
}

func (q *twinSeq) parked() bool { return q.group != nil && q.group.parked[q] }

func (q *twinSeq) limit() int {
	if q.req.Pool {
		return len(q.req.Prompt)
	}
	return q.req.Max - 1
}

func (q *twinSeq) left() int { return min(len(q.tokens)+q.flying, q.limit()) - q.computed }

// seats returns the running sequences; the one that is preempted last is first.
func (w *twin) seats() (list []*twinSeq) {
	for _, q := range w.all {
		if q.running {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b *twinSeq) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
	})
	return list
}

// line returns the sequences that want a share for their prompt, in the order of their turns.
func (w *twin) line(want func(*twinSeq) bool) (list []*twinSeq) {
	for _, q := range w.all {
		if want(q) {
			list = append(list, q)
		}
	}
	time := func(q *twinSeq) int {
		if q.rank == first {
			return 0
		}
		return w.flows[flowOf(q)]
	}
	late := func(q *twinSeq) int {
		if q.running {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b *twinSeq) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(time(a), time(b)), cmp.Compare(late(a), late(b)), cmp.Compare(a.order, b.order))
	})
	return list
}

func waits(q *twinSeq) bool { return !q.running && !q.parked() }

// schedule returns the items of the next batch in words; nil for none.
func (w *twin) schedule() []string {
	if len(w.flights) == max(1, w.cfg.Depth) {
		return nil
	}
	w.step++
	w.items, w.chosen, w.copies, w.tokens = nil, nil, nil, 0
	w.flights = append(w.flights, nil)
	w.age()
	w.makeRoom()
	w.shareSeats()
	preempted := w.decode()
	done := w.fill(!preempted)
	if len(w.items) == 0 {
		w.step--
		w.flights = w.flights[:len(w.flights)-1]
		return nil
	}
	for _, q := range w.chosen {
		w.name(q)
	}
	for _, q := range done {
		q.group.leader = nil
		clear(q.group.parked)
	}
	for _, id := range w.ends {
		w.items = append(w.items, fmt.Sprintf("end %d", id))
	}
	w.ends = nil
	return append(w.items, fmt.Sprint(w.copies))
}

func (w *twin) age() {
	line := w.line(waits)
	if len(line) == 0 {
		w.waited = 0
		return
	}
	if w.waited++; w.waited < cmp.Or(w.aging, 128) {
		return
	}
	w.waited = 0
	old := slices.MinFunc(line, func(a, b *twinSeq) int { return cmp.Compare(a.order, b.order) })
	if old != line[0] && old.rank != first {
		old.rank = first
		w.stats.Promoted++
	}
}

func (w *twin) makeRoom() {
	for {
		line, seats := w.line(waits), w.seats()
		if len(line) == 0 || len(seats) == 0 {
			return
		}
		q, last := line[0], seats[len(seats)-1]
		if q.flying > 0 || q.rank == first || last.rank <= q.rank {
			return
		}
		short := w.need(q) - w.pool.Available()
		if short <= 0 && len(seats) < w.cfg.Seats {
			return
		}
		for _, o := range seats {
			for _, b := range o.blocks {
				if o.rank > q.rank && w.pool.Holders(b) == 1 {
					short--
				}
			}
		}
		if short > 0 {
			return
		}
		w.preempt(last)
	}
}

func (w *twin) shareSeats() {
	line, seats := w.line(waits), w.seats()
	if len(line) == 0 || len(seats) < w.cfg.Seats || line[0].flying > 0 || line[0].rank == first || w.step-line[0].since < 16 {
		return
	}
	tenants, taken := map[string]bool{}, map[string]int{}
	for _, q := range w.all {
		tenants[flowOf(q)] = true
		if q.running {
			taken[flowOf(q)]++
		}
	}
	share := (w.cfg.Seats + len(tenants) - 1) / len(tenants)
	if taken[flowOf(line[0])] >= share {
		return
	}
	slices.Reverse(seats)
	for _, q := range seats {
		if q.rank >= line[0].rank && taken[flowOf(q)] > share {
			w.preempt(q)
			return
		}
	}
}

func (w *twin) decode() (preempted bool) {
	for _, q := range w.seats() {
		if !q.running || q.left() != 1 || q.req.Lockstep && q.flying > 0 {
			continue
		}
		for q.running && q.computed == len(q.blocks)*w.pool.Size() {
			if b, ok := w.pool.Alloc(); ok {
				q.blocks = append(q.blocks, b)
				continue
			}
			preempted = true
			seats := w.seats()
			w.preempt(seats[len(seats)-1])
		}
		if q.running {
			w.put(q, 1)
		} else {
			return true
		}
	}
	return preempted
}

func (w *twin) fill(admit bool) (done []*twinSeq) {
	patience, worst, got := cmp.Or(w.patience, 64), math.MaxInt, map[string]int{}
	for w.tokens < w.cfg.Budget {
		open := admit && len(w.seats()) < w.cfg.Seats
		wants := func(q *twinSeq) bool {
			return q.running && q.step != w.step && q.left() > 1 || open && waits(q)
		}
		all := w.line(wants)
		blocked := false // of promoted sequences that wait only the first is looked at
		line := slices.DeleteFunc(slices.Clone(all), func(q *twinSeq) bool {
			full := w.room(q, got) <= 0
			if q.rank == first && waits(q) {
				full = full || blocked
				blocked = full
			}
			return full
		})
		if len(line) == 0 || line[0].rank > worst {
			return done
		}
		q := line[0]
		someone := len(w.line(waits)) > 0
		if w.turns >= patience && (slices.ContainsFunc(line, waits) || !someone) {
			w.turns = 0
			old := slices.MinFunc(all, func(a, b *twinSeq) int { return cmp.Compare(a.order, b.order) })
			if old != q && old.rank != first {
				old.rank = first
				w.stats.Promoted++
				continue
			}
		}
		if !q.running && !w.admit(q) {
			admit = q.parked()
			continue
		}
		w.turns++
		n := min(q.left(), w.cfg.Budget-w.tokens)
		if n < q.left() {
			n = min(n, w.room(q, got))
		}
		if q.rank != first {
			w.clocks[q.req.Priority] = max(w.clocks[q.req.Priority], w.flows[flowOf(q)])
		}
		if n >= w.room(q, got) {
			worst = q.req.Priority
		}
		got[flowOf(q)] += n
		w.put(q, n)
		if q.group != nil && q.group.leader == q && q.computed >= len(q.req.Prompt)-1 {
			done = append(done, q)
		}
	}
	return done
}

// room returns how many tokens a sequence may have for its prompt, when tenants have got so many in this step.
func (w *twin) room(q *twinSeq, got map[string]int) int {
	for _, o := range w.all {
		if o.req.Priority == q.req.Priority && o.req.Tenant != q.req.Tenant {
			return (w.cfg.Budget+1)/2 - got[flowOf(q)]
		}
	}
	return w.cfg.Budget
}

func (w *twin) donor(q *twinSeq) *twinSeq {
	if q.group == nil {
		return nil
	}
	for _, o := range q.group.members {
		have := o.computed
		if o.step == w.step {
			have = o.from
		}
		if o.running && have > 0 && have >= len(q.req.Prompt)-1 {
			return o
		}
	}
	return nil
}

// hits returns the names of q's full blocks that the cache has, without its last token's.
func (w *twin) hits(q *twinSeq) (names []block.Hash) {
	if !w.cfg.Prefix || q.req.Score || q.req.Pool {
		return nil
	}
	for _, h := range block.Chain(nil, q.req.Root, q.tokens[:len(q.tokens)-1], w.pool.Size()) {
		if _, ok := w.pool.Lookup(h); !ok {
			break
		}
		names = append(names, h)
	}
	return names
}

func (w *twin) need(q *twinSeq) int {
	need := w.pool.Need(len(q.tokens))
	if w.donor(q) != nil {
		return need - (len(q.req.Prompt)-1)/w.pool.Size()
	}
	if need <= w.pool.Available() {
		return need
	}
	for _, h := range w.hits(q) {
		if b, _ := w.pool.Lookup(h); w.pool.Holders(b) > 0 {
			need--
		}
	}
	return need
}

func (w *twin) admit(q *twinSeq) bool {
	if q.flying > 0 {
		return false
	}
	donor := w.donor(q)
	if g := q.group; g != nil && donor == nil && g.leader != nil && g.leader != q {
		g.parked[q] = true
		return false
	}
	if w.need(q) > w.pool.Available() {
		return false
	}
	if donor != nil {
		q.computed = len(q.req.Prompt) - 1
		full := q.computed / w.pool.Size()
		for _, b := range donor.blocks[:full] {
			w.pool.Share(b)
			q.blocks = append(q.blocks, b)
		}
		if q.computed%w.pool.Size() > 0 {
			b, _ := w.pool.Alloc()
			q.blocks = append(q.blocks, b)
			w.copies = append(w.copies, sched.Copy{From: donor.blocks[full], To: b})
		}
	} else {
		if q.group != nil {
			q.group.leader = q
		}
		for _, h := range w.hits(q) {
			b, _ := w.pool.Take(h)
			q.blocks = append(q.blocks, b)
			q.computed += w.pool.Size()
		}
		if q.high == 0 {
			w.stats.PrefixFound += q.computed
		}
	}
	q.high, q.named = max(q.high, q.computed), q.computed/w.pool.Size()
	for len(q.blocks) < w.pool.Need(len(q.tokens)) {
		b, _ := w.pool.Alloc()
		q.blocks = append(q.blocks, b)
	}
	q.running = true
	return true
}
