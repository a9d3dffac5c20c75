package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Minutes are kept for a day, then hours: at most mostPast rows, some 20 MiB. Hours only are saved, some 600 KiB.
const (
	fine      = 24 * time.Hour
	coarse    = time.Hour
	mostPast  = 1 << 17
	mostSaved = 1000
)

type rowKey struct {
	function           api.FunctionName
	tenant, key, state string
}

func keyOf(r admin.UsageRow) rowKey { return rowKey{r.Function, r.Tenant, r.Key, r.State} }

type table map[rowKey]*admin.UsageRow

func (t table) add(r admin.UsageRow) {
	k := keyOf(r)
	if len(t) >= mostRows && t[k] == nil {
		r.Function, r.Tenant, r.Key = Others, Others, Others
		k = keyOf(r)
	}
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

func (t table) keyless() table {
	all := make(table, len(t))
	for _, r := range t {
		one := *r
		one.Key = ""
		all.add(one)
	}
	return all
}

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

// period is between two times since the meter began.
type period struct {
	from, to time.Duration
	rows     table
}

// history is adjacent periods, the oldest first.
type history struct {
	periods []period
	rows    int // of all
}

// keep merges or drops older periods.
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

func (h *history) end() time.Duration { return h.last().to }

func (h *history) last() period {
	if n := len(h.periods); n > 0 {
		return h.periods[n-1]
	}
	return period{rows: table{}}
}

// fold merges old periods of the same hour.
func (h *history) fold(old func(period) bool) {
	n, k := 0, 0 // n: finished periods
	for ; k < len(h.periods) && old(h.periods[k]); k++ {
		p := h.periods[k]
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
	if n < k {
		h.periods = slices.Delete(h.periods, n, k)
	}
}

// between counts whole periods: the range may be slightly larger.
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
		rows = m.open(rows)
		since, until = min(since, m.window), m.now
	}
	if until < 0 { // empty
		since = min(first, m.now)
		until = since
	}
	return rows, since, until
}

// Saved is the usage so far, and its hours, the latest first.
type Saved struct {
	All   admin.Usage
	Hours []admin.Usage
}

// Save returns what a later meter goes on from; nil: nothing has changed since the last call.
func (m *Meter) Save(now time.Time) *Saved {
	if m.advance(now); !m.news {
		return nil
	}
	m.news = false
	var hours []period
	rows := 0
	for _, p := range slices.Backward(append(slices.Clone(m.past.periods), period{m.window, m.now, m.open(table{})})) {
		n := len(hours) - 1
		if n < 0 || hours[n].from/coarse != p.from/coarse {
			if rows > mostSaved {
				break
			}
			n++
			hours = append(hours, period{to: p.to, rows: table{}})
		}
		rows -= len(hours[n].rows)
		hours[n].rows.merge(p.rows)
		hours[n].from = p.from
		rows += len(hours[n].rows)
	}
	s := &Saved{All: m.Report(now, admin.UsageQuery{Keys: true})}
	s.All.Rows = within(s.All.Rows)
	for _, p := range hours {
		s.Hours = append(s.Hours, admin.Usage{Since: m.began.Add(p.from), Until: m.began.Add(p.to), Rows: within(p.rows.list())})
	}
	return s
}

// within adds up the rows beyond mostSaved as [Others].
func within(rows []admin.UsageRow) []admin.UsageRow {
	if len(rows) <= mostSaved {
		return rows
	}
	rest := table{}
	for _, r := range rows[mostSaved:] {
		r.Function, r.Tenant, r.Key = Others, Others, Others
		rest.add(r)
	}
	return append(rows[:mostSaved], rest.list()...)
}

// restore: if the clock was set back since, all of it counts as so much earlier.
func (m *Meter) restore(now time.Time, s *Saved) {
	began := s.All.Since
	m.began = began.Add(min(0, now.Sub(s.All.Until)))
	m.now = now.Sub(m.began)
	m.window, m.next = m.now, m.now.Truncate(Window)+Window
	m.rows = tableOf(s.All.Rows)
	for _, u := range slices.Backward(s.Hours) {
		m.past.keep(period{u.Since.Sub(began), u.Until.Sub(began), tableOf(u.Rows)})
	}
	m.past.keep(period{s.All.Until.Sub(began), m.now, table{}}) // nothing was counted
}

func tableOf(rows []admin.UsageRow) table {
	t := table{}
	for _, r := range rows {
		t.add(r)
	}
	return t
}
