// Package usage measures how long functions held which share of GPUs, and which tenants used that.
//
//  1. An awake instance holds its share of a GPU's memory; all of it, if its memory is unknown. All holders together are
//     scaled down to the whole. A sleeper holds what it keeps. The rest is idle.
//  2. Activators divide the time that a function's instances hold awake among its requests (package activator/queue). The
//     rest is the function's own, as are requests without a key.
//  3. Time is cut into windows ([Window]). Reports come seconds late: what exceeds a window's held time belongs to the
//     window before, whose rest it takes. Activators that share an instance each take it to be their own: what exceeds
//     both windows is left out, and the reported shares are scaled down.
//  4. Windows are kept: minutes for a day, then hours. A later process goes on from [Meter.Save].
//
// The caller passes the time. A [Meter] is not safe for concurrent use.
package usage

import (
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Window is the time that is counted together.
const Window = time.Minute

// The excess is counted as [Others].
const (
	mostTenants = 200
	mostRows    = 1 << 14
	mostSources = 1 << 12
	mostKeys    = 1000
	silent      = time.Hour // activators repeat reports each minute
	Others      = "other"
)

// Holder is an instance and what it holds.
type Holder struct {
	Instance api.InstanceID
	Function api.FunctionName
	Asleep   bool
	Devices  []api.DeviceID
	// Bytes is the memory on each device. 0 for an awake instance: all of it.
	Bytes api.Bytes
}

// Meter measures usage; see [New].
type Meter struct {
	began   time.Time
	started time.Time     // by this process
	now     time.Duration // since began; it never goes back
	window  time.Duration // the beginning of the window
	next    time.Duration // its end
	devices map[api.DeviceID]*device
	holders map[api.InstanceID]*holder
	idle    float64 // of the window, in seconds
	tenants map[string]bool
	keys    map[string]bool
	costs   map[api.FunctionName]map[user]float64 // GPU-seconds in the window
	rows    table                                 // of all final windows
	last    table                                 // of the window
	past    history
	news    bool // there is something to save
	sources map[sourceKey]source
}

type (
	sourceKey struct {
		activator string
		function  api.FunctionName
	}
	// source is an activator's last report of a function.
	source struct {
		heard time.Duration
		uses  map[user]api.Use
	}
	user struct{ tenant, key string }
)

// device does not exist if only holders name it.
type device struct {
	there    bool
	capacity float64
	since    time.Duration
	holders  []*holder
}

type holder struct {
	Holder
	gone         bool
	held, asleep float64 // of the window, in seconds
}

// New counts from now on, after what an earlier meter saved; may be nil.
func New(now time.Time, saved *Saved) *Meter {
	m := &Meter{
		began: now, started: now, next: Window, devices: map[api.DeviceID]*device{}, holders: map[api.InstanceID]*holder{}, costs: map[api.FunctionName]map[user]float64{},
		tenants: map[string]bool{"": true}, keys: map[string]bool{"": true}, rows: table{}, last: table{}, sources: map[sourceKey]source{},
	}
	if saved != nil {
		m.restore(now, saved)
	}
	return m
}

// SetDevices replaces the GPUs.
func (m *Meter) SetDevices(now time.Time, devices []inventory.Device) {
	m.advance(now)
	there := make(map[api.DeviceID]bool, len(devices))
	for _, d := range devices {
		if d.IsHost() {
			continue
		}
		there[d.ID] = true
		g := m.device(d.ID)
		m.accrue(g)
		g.there, g.capacity = true, float64(max(d.Capacity, 1))
	}
	for id, g := range m.devices {
		if !there[id] {
			m.accrue(g)
			if g.there = false; len(g.holders) == 0 {
				delete(m.devices, id)
			}
		}
	}
}

// Share returns how many GPUs h holds, by memory.
func (m *Meter) Share(h Holder) (gpus float64) {
	for _, id := range h.Devices {
		if d := m.devices[id]; d != nil && d.there {
			gpus += (&holder{Holder: h}).on(d) / d.capacity
		}
	}
	return gpus
}

// Set records what an instance holds from now on.
func (m *Meter) Set(now time.Time, h Holder) {
	m.advance(now)
	old := m.holders[h.Instance]
	if old == nil {
		old = &holder{Holder: Holder{Instance: h.Instance, Function: h.Function}}
		m.holders[h.Instance] = old
	}
	if !old.gone && old.Asleep == h.Asleep && old.Bytes == h.Bytes && slices.Equal(old.Devices, h.Devices) {
		return
	}
	m.leave(old)
	h.Devices = slices.Compact(slices.Sorted(slices.Values(h.Devices)))
	old.Holder, old.gone = h, false
	for _, id := range h.Devices {
		d := m.device(id)
		m.accrue(d)
		d.holders = append(d.holders, old)
	}
}

// Drop records that an instance is gone.
func (m *Meter) Drop(now time.Time, id api.InstanceID) {
	m.advance(now)
	if h := m.holders[id]; h != nil && !h.gone {
		m.leave(h)
		h.gone = true // its usage may be reported late
	}
}

func (m *Meter) leave(h *holder) {
	for _, id := range h.Devices {
		d := m.device(id)
		m.accrue(d)
		d.holders = slices.DeleteFunc(d.holders, func(o *holder) bool { return o == h })
	}
	h.Devices = nil
}

func (m *Meter) device(id api.DeviceID) *device {
	d := m.devices[id]
	if d == nil {
		d = &device{since: m.now}
		m.devices[id] = d
	}
	return d
}

// accrue books d's time since the last booking.
func (m *Meter) accrue(d *device) {
	took := (m.now - d.since).Seconds()
	d.since = m.now
	if !d.there || took <= 0 {
		return
	}
	sum := 0.0
	for _, h := range d.holders {
		sum += h.on(d)
	}
	whole := max(sum, d.capacity)
	for _, h := range d.holders {
		if share := took * h.on(d) / whole; h.Asleep {
			h.asleep += share
		} else {
			h.held += share
		}
	}
	m.idle += took * (whole - sum) / whole
}

// on returns h's bytes of d.
func (h *holder) on(d *device) float64 {
	switch {
	case h.Bytes > 0:
		return float64(h.Bytes)
	case h.Asleep:
		return 0
	}
	return d.capacity
}

// Used takes in an activator's report.
func (m *Meter) Used(now time.Time, u api.Usage) {
	m.advance(now)
	key := sourceKey{u.Activator, u.Function}
	if _, known := m.sources[key]; !known && len(m.sources) >= mostSources {
		maps.DeleteFunc(m.sources, func(_ sourceKey, s source) bool { return m.now-s.heard >= silent })
		if len(m.sources) >= mostSources {
			return
		}
	}
	last := m.sources[key].uses
	told := make(map[user]api.Use, len(u.Uses))
	for _, s := range u.Uses {
		k := user{s.Tenant, s.Key}
		before, seen := last[k]
		switch {
		case seen && (s.Begun.Before(before.Begun) || s.Begun.Equal(before.Begun) && s.Requests <= before.Requests && s.GPUSeconds <= before.GPUSeconds):
			told[k] = before // nothing new, or late
			continue
		case !s.Begun.Equal(before.Begun):
			before = api.Use{}
		}
		told[k] = s
		if !seen && s.Begun.Before(m.started) {
			continue // an earlier meter may have some of it
		}
		by := user{label(m.tenants, s.Tenant, mostTenants), label(m.keys, s.Key, mostKeys)}
		m.news = true
		m.last.add(admin.UsageRow{
			Function: u.Function, Tenant: by.tenant, Key: by.key, State: admin.UsageAwake, Requests: s.Requests - before.Requests,
			Input: max(0, s.Input-before.Input), Cached: max(0, s.Cached-before.Cached), Output: max(0, s.Output-before.Output),
		})
		if m.costs[u.Function] == nil {
			m.costs[u.Function] = map[user]float64{}
		}
		m.costs[u.Function][by] += max(0, s.GPUSeconds-before.GPUSeconds)
	}
	m.sources[key] = source{m.now, told}
}

// label bounds the number of names from clients.
func label(known map[string]bool, name string, most int) string {
	if !known[name] {
		if len(known) > most {
			return Others
		}
		known[name] = true
	}
	return name
}

// advance ends windows on the way.
func (m *Meter) advance(now time.Time) {
	to := max(m.now, now.Sub(m.began))
	for to >= m.next {
		m.now = m.next
		m.settle()
		m.window = m.next
		m.next = max(m.next+Window, to.Truncate(Window)) // windows without an event are merged into one
	}
	m.now = to
}

func (m *Meter) settle() {
	for _, d := range m.devices {
		m.accrue(d)
	}
	before := m.past.last()
	m.past.rows -= len(before.rows)
	m.divide(m.last.add, before.rows)
	m.past.rows += len(before.rows)
	m.rows.merge(before.rows)
	m.past.keep(period{from: m.window, to: m.next, rows: m.last})
	m.news = m.news || len(m.last) > 0
	m.last = table{}
	m.idle = 0
	clear(m.costs)
	for id, h := range m.holders {
		h.held, h.asleep = 0, 0
		if h.gone {
			delete(m.holders, id)
		}
	}
}

// divide divides what was held in the window among its users, and their excess from what nobody used of the window
// before.
func (m *Meter) divide(give func(admin.UsageRow), before table) {
	if m.idle > 0 {
		give(admin.UsageRow{State: admin.UsageIdle, GPUSeconds: m.idle})
	}
	held := map[api.FunctionName]float64{}
	for f := range m.costs {
		held[f] = 0
	}
	for _, h := range m.holders {
		if h.asleep > 0 {
			give(admin.UsageRow{Function: h.Function, State: admin.UsageAsleep, GPUSeconds: h.asleep})
		}
		held[h.Function] += h.held
	}
	for f, h := range held {
		own := admin.UsageRow{Function: f, State: admin.UsageAwake}
		all := 0.0
		for _, cost := range m.costs[f] {
			all += cost
		}
		used, late := min(all, h), 0.0
		if row := before[keyOf(own)]; row != nil {
			late = min(all-used, row.GPUSeconds)
			row.GPUSeconds -= late
		}
		for by, cost := range m.costs[f] {
			if cost == 0 {
				continue
			}
			row := admin.UsageRow{Function: f, Tenant: by.tenant, Key: by.key, State: admin.UsageAwake, GPUSeconds: used * cost / all}
			give(row)
			if row.GPUSeconds = late * cost / all; late > 0 {
				before.add(row)
			}
		}
		if own.GPUSeconds = h - used; own.GPUSeconds > 0 {
			give(own)
		}
	}
}

// Settled returns the usage of all windows but the last two, summed over API keys. It never decreases.
func (m *Meter) Settled(now time.Time) []admin.UsageRow {
	m.advance(now)
	return m.rows.keyless().list()
}

// Report divides the current window by the usage so far.
func (m *Meter) Report(now time.Time, q admin.UsageQuery) admin.Usage {
	m.advance(now)
	rows, since, until := table(nil), time.Duration(0), m.now
	if q.From.IsZero() && q.To.IsZero() {
		rows = table{}
		rows.merge(m.rows)
		rows.merge(m.past.last().rows)
		rows = m.open(rows)
	} else {
		rows, since, until = m.between(q)
	}
	if !q.Keys {
		rows = rows.keyless()
	}
	return admin.Usage{Since: m.began.Add(since), Until: m.began.Add(until), Rows: rows.list()}
}

// open adds the current window so far.
func (m *Meter) open(rows table) table {
	for _, d := range m.devices {
		m.accrue(d)
	}
	rows.merge(m.last)
	m.divide(rows.add, table{})
	return rows
}
