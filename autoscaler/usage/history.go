package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Bounds of the history: minutes for a day, then hours, and at most mostPast rows, which take some 20 MiB.
const (
	fine     = 24 * time.Hour
	coarse   = time.Hour
	mostPast = 1 << 17
)

// rowKey identifies a row.
type rowKey struct {
	function           api.FunctionName
	tenant, key, state string
}

func keyOf(r admin.UsageRow) rowKey { return rowKey{r.Function, r.Tenant, r.Key, r.State} }

// table has rows by their keys.
type table map[rowKey]*admin.UsageRow

// add adds a row's numbers to the row with the same key.
func (t table) add(r admin.UsageRow) {
	k := keyOf(r)
	sum := t[k]
	if sum == nil {
		t[k] = &r
		return
	}
	sum.Requests += r.Requests
	sum.Input += r.Input
	sum.Cached += r.Cached
	sum.Output += r.Output
	sum.GPUSeconds += r.GPUSeconds
}

func (t table) merge(other table) {
	for _, r := range other {
		t.add(*r)
	}
}

// keyless returns the rows summed over API keys.
func (t table) keyless() table {
	all := make(table, len(t))
	for _, r := range t {
		one := *r
		one.Key = ""
		all.add(one)
	}
	return all
}

// list returns the rows in order.
func (t table) list() []admin.UsageRow {
	list := make([]admin.UsageRow, 0, len(t))
	for _, r := range t {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b admin.UsageRow) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Key, b.Key), cmp.Compare(a.State, b.State))
	})
	return list
}

// period is the usage between two times since the meter began.
type period struct {
	from, to time.Duration
	rows     table
}

// history is periods, the oldest first: each begins where the previous one ends.
type history struct {
	periods []period
	rows    int // of all
}

// keep adds the latest period, and merges or drops older ones.
func (h *history) keep(p period) {
	h.periods = append(h.periods, p)
	h.rows += len(p.rows)
	h.fold(func(p period) bool { return h.end()-p.to >= fine })
	if h.rows > mostPast { // as if it were as old
		h.fold(func(p period) bool { return h.end()-p.to >= coarse })
	}
	for h.rows > mostPast && len(h.periods) > 1 {
		h.rows -= len(h.periods[0].rows)
		h.periods[0].rows = nil
		h.periods = h.periods[1:]
	}
}

func (h *history) end() time.Duration { return h.periods[len(h.periods)-1].to }

// fold merges old periods of the same hour.
func (h *history) fold(old func(period) bool) {
	n := 0 // finished periods
	for k, p := range h.periods {
		if !old(p) {
			if n < k { // else nothing was folded
				n += copy(h.periods[n:], h.periods[k:])
				clear(h.periods[n:])
				h.periods = h.periods[:n]
			}
			return
		}
		if n > 0 && h.periods[n-1].from/coarse == (p.to-1)/coarse {
			into := &h.periods[n-1]
			h.rows -= len(into.rows) + len(p.rows)
			into.rows.merge(p.rows)
			h.rows += len(into.rows)
			into.to = p.to
			continue
		}
		h.periods[n] = p
		n++
	}
}

// between returns the usage between two times. It counts whole periods, a minute or, a day later, an hour each, so the range
// may be slightly larger. Times before the history are left out.
func (m *Meter) between(q admin.UsageQuery) (rows table, since, until time.Duration) {
	first, last := time.Duration(0), m.now
	if !q.From.IsZero() {
		first = max(0, q.From.Sub(m.began))
	}
	if !q.To.IsZero() {
		last = min(q.To.Sub(m.began), m.now)
	}
	rows, since, until = table{}, m.now, -1
	for _, p := range m.past.periods {
		if p.to > first && p.from < last {
			rows.merge(p.rows)
			since, until = min(since, p.from), p.to
		}
	}
	if m.now > first && m.window < last {
		rows.merge(m.last)
		rows = m.open(rows)
		since, until = min(since, m.window), m.now
	}
	if until < 0 { // empty
		since = min(first, m.now)
		until = since
	}
	return rows, since, until
}
