// Package usage measures who uses GPUs: how long functions held which share of them, and which tenants used what was held.
//
//  1. An instance that is not asleep holds the share of a GPU's memory that it takes; where its memory is not known, all of it. What
//     holders take together beyond the whole is scaled down to the whole. A sleeper holds what it keeps.
//  2. Time is cut into windows ([Window]). At the end of each, what an instance held awake is divided by what tenants used of it
//     in the window, by the cost that activators report. What nobody used is the function's own. So are requests without a key.
//  3. What is not held is idle. Held, asleep and idle time are the GPU's time.
//  4. What each window had is kept: its minutes for a day, then hours, up to a bound ([Meter.Report]). Nothing is written to a disk.
//
// A request counts when it has ended: the windows in which only longer ones run are the function's own. The package
// decides nothing and has no clock: its caller says what time it is. A [Meter] belongs to one goroutine.
package usage

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Window is how often held time is divided among tenants.
const Window = time.Minute

// Bounds of what is kept; what is beyond them is counted as of [Others].
const (
	mostTenants = 200
	mostRows    = 1 << 14
	mostSources = 1 << 12
	mostKeys    = 1000
	Others      = "other"
)

// Holder is an instance and what it holds.
type Holder struct {
	Instance api.InstanceID
	Function api.FunctionName
	Asleep   bool
	Devices  []api.DeviceID
	// Bytes are those of each device. None of an instance that is not asleep is: all of it.
	Bytes api.Bytes
}

// Meter adds up. The zero value is not usable: see [New].
type Meter struct {
	began   time.Time
	now     time.Duration // since began; it never goes back
	window  time.Duration // the begin of the window
	next    time.Duration // its end
	devices map[api.DeviceID]*device
	holders map[api.InstanceID]*holder
	idle    float64 // of the window, in seconds
	tenants map[string]bool
	keys    map[string]bool
	rows    table
	last    table // of the window
	past    history
	sources map[sourceKey]map[useKey]api.Use // what activators said last
}

type (
	sourceKey struct {
		activator string
		function  api.FunctionName
	}
	useKey struct {
		instance    api.InstanceID
		tenant, key string
	}
	user struct{ tenant, key string }
)

// device is a GPU. One that is only named by holders is not there, and has no time.
type device struct {
	there    bool
	capacity float64
	since    time.Duration
	holders  []*holder
}

type holder struct {
	Holder
	gone         bool
	held, asleep float64          // of the window, in seconds
	costs        map[user]float64 // of the window
}

// New makes a meter that counts from now on.
func New(now time.Time) *Meter {
	return &Meter{
		began: now, next: Window, devices: map[api.DeviceID]*device{}, holders: map[api.InstanceID]*holder{},
		tenants: map[string]bool{"": true}, keys: map[string]bool{"": true}, rows: table{}, last: table{}, sources: map[sourceKey]map[useKey]api.Use{},
	}
}

// SetDevices replaces the GPUs that there are.
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

// Set says what an instance holds from now on.
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

// Drop says that an instance is gone.
func (m *Meter) Drop(now time.Time, id api.InstanceID) {
	m.advance(now)
	if h := m.holders[id]; h != nil && !h.gone {
		m.leave(h)
		h.gone = true // until the window ends: what was used of it may be told late
	}
}

// leave takes h off its devices.
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

// accrue books the time of d since it was booked last.
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

// on is how many bytes of d are h's.
func (h *holder) on(d *device) float64 {
	switch {
	case h.Bytes > 0:
		return float64(h.Bytes)
	case h.Asleep:
		return 0
	}
	return d.capacity
}

// Used takes in what an activator says.
func (m *Meter) Used(now time.Time, u api.Usage) {
	m.advance(now)
	source := sourceKey{u.Activator, u.Function}
	last, known := m.sources[source]
	if !known && len(m.sources) >= mostSources {
		return
	}
	told := make(map[useKey]api.Use, len(u.Uses))
	for _, s := range u.Uses {
		k := useKey{s.Instance, s.Tenant, s.Key}
		before, seen := last[k]
		switch {
		case seen && (s.Begun.Before(before.Begun) || s.Begun.Equal(before.Begun) && s.Requests <= before.Requests):
			told[k] = before // nothing new, or late
			continue
		case !s.Begun.Equal(before.Begun):
			before = api.Use{}
		}
		told[k] = s
		if !seen && s.Begun.Before(m.began) {
			continue // some of it may have been told another meter, that was there before
		}
		by := user{label(m.tenants, s.Tenant, mostTenants), label(m.keys, s.Key, mostKeys)}
		m.add(admin.UsageRow{
			Function: u.Function, Tenant: by.tenant, Key: by.key, State: admin.UsageAwake, Requests: s.Requests - before.Requests,
			Input: max(0, s.Input-before.Input), Cached: max(0, s.Cached-before.Cached), Output: max(0, s.Output-before.Output),
		})
		h := m.holders[s.Instance]
		if h == nil { // what it holds may be told later in the window
			h = &holder{Holder: Holder{Instance: s.Instance, Function: u.Function}, gone: true}
			m.holders[s.Instance] = h
		}
		if h.Function == u.Function {
			if h.costs == nil {
				h.costs = map[user]float64{}
			}
			h.costs[by] += max(0, s.Cost-before.Cost)
		}
	}
	m.sources[source] = told
}

// label bounds names that clients bring.
func label(known map[string]bool, name string, most int) string {
	if !known[name] {
		if len(known) > most {
			return Others
		}
		known[name] = true
	}
	return name
}

// add counts what was used or held in the window.
func (m *Meter) add(r admin.UsageRow) {
	if len(m.rows) >= mostRows && m.rows[keyOf(r)] == nil {
		r.Function, r.Tenant, r.Key = Others, Others, Others
	}
	m.rows.add(r)
	m.last.add(r)
}

// advance brings the meter to now, over the ends of windows.
func (m *Meter) advance(now time.Time) {
	to := max(m.now, now.Sub(m.began))
	for to >= m.next {
		m.now = m.next
		m.settle()
		m.window = m.next
		m.next = max(m.next+Window, to.Truncate(Window)) // nothing came meanwhile: windows without an event are one
	}
	m.now = to
}

// settle ends a window.
func (m *Meter) settle() {
	for _, d := range m.devices {
		m.accrue(d)
	}
	m.divide(m.add)
	m.past.keep(period{from: m.window, to: m.next, rows: m.last})
	m.last = table{}
	m.idle = 0
	for id, h := range m.holders {
		h.held, h.asleep, h.costs = 0, 0, nil
		if h.gone {
			delete(m.holders, id)
		}
	}
}

// divide gives what was held in the window to those who used it.
func (m *Meter) divide(give func(admin.UsageRow)) {
	if m.idle > 0 {
		give(admin.UsageRow{State: admin.UsageIdle, GPUSeconds: m.idle})
	}
	for _, h := range m.holders {
		if h.asleep > 0 {
			give(admin.UsageRow{Function: h.Function, State: admin.UsageAsleep, GPUSeconds: h.asleep})
		}
		all := 0.0
		for _, cost := range h.costs {
			all += cost
		}
		switch {
		case h.held == 0:
		case all == 0:
			give(admin.UsageRow{Function: h.Function, State: admin.UsageAwake, GPUSeconds: h.held})
		default:
			for by, cost := range h.costs {
				give(admin.UsageRow{Function: h.Function, Tenant: by.tenant, Key: by.key, State: admin.UsageAwake, GPUSeconds: h.held * cost / all})
			}
		}
	}
}

// Settled is what is known for good, whatever the key: windows that have ended. Its numbers never go back.
func (m *Meter) Settled(now time.Time) []admin.UsageRow {
	m.advance(now)
	return m.rows.keyless().list()
}

// Report is what is known now of what a query asks for: the window that has not ended is divided by what was used so far. A query without
// bounds is of all that the meter has counted; of others see [Meter.between].
func (m *Meter) Report(now time.Time, q admin.UsageQuery) admin.Usage {
	m.advance(now)
	rows, since, until := table(nil), time.Duration(0), m.now
	if q.From.IsZero() && q.To.IsZero() {
		rows = m.open(m.rows)
	} else {
		rows, since, until = m.between(q)
	}
	if !q.Keys {
		rows = rows.keyless()
	}
	return admin.Usage{Since: m.began.Add(since), Until: m.began.Add(until), Rows: rows.list()}
}

// open are rows with what the window has held so far.
func (m *Meter) open(rows table) table {
	for _, d := range m.devices {
		m.accrue(d)
	}
	all := make(table, len(rows))
	all.merge(rows)
	m.divide(all.add)
	return all
}
