package decide

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// class orders what functions want.
type class int

const (
	first class = iota // requests wait and nothing is awake or on its way
	kept               // MinScale
	extra              // one more beside those that are awake
)

// claim is a function that wants one more instance awake.
type claim struct {
	f     *fn
	class class
	// late says that it has starved for Policy.Patience turns and goes before everybody.
	late bool
	// nth counts the claims of a function.
	nth int
	why string
	// of is the function whose claim it is, where another variant serves it.
	of *fn
}

// claim collects what functions want and serves it in order:
//
//  1. who starves for too long, the longest first, whatever the priority
//  2. first instances, then MinScale, then further ones
//  3. the higher priority
//  4. who starves for longer
//  5. the name, and the number where a function has several, so that the order is always the same
func (p *plan) claim() {
	var cs []claim
	for _, f := range p.fs {
		cs = p.claims(f, cs)
	}
	slices.SortFunc(cs, func(a, b claim) int { return a.compare(&b) })
	for k := range cs {
		c := &cs[k]
		if c.class != first {
			p.bookDeferred()
		}
		p.serve(c)
	}
	p.bookDeferred()
}

// compare orders claims, those that are served first before others.
func (c *claim) compare(d *claim) int {
	if c.late != d.late {
		return cmp.Compare(btoi(d.late), btoi(c.late))
	}
	if !c.late && (c.class != d.class || c.f.Spec.Priority != d.f.Spec.Priority) {
		return cmp.Or(cmp.Compare(c.class, d.class), cmp.Compare(d.f.Spec.Priority, c.f.Spec.Priority))
	}
	if way := c.f.starved.Compare(d.f.starved); way != 0 {
		return way
	}
	return cmp.Or(cmp.Compare(c.f.Spec.Name, d.f.Spec.Name), cmp.Compare(c.nth, d.nth))
}

// bookDeferred books for the first instances that have to wait, before others are served.
func (p *plan) bookDeferred() {
	for _, needs := range p.deferred {
		p.book(needs)
	}
	p.deferred = p.deferred[:0]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mostClaims bounds what one function claims in one plan; the rest follows in later ones.
const mostClaims = 16

// claims adds what f wants.
func (p *plan) claims(f *fn, cs []claim) []claim {
	if f.scaled && f.desired == 0 && f.Waiting > 0 && f.live() == 0 {
		p.wait(&claim{f: f}, fmt.Sprintf("%d waiting, and %s", f.Waiting, f.Scale))
	}
	if !f.declared || f.frozen() || f.refused || f.desired <= f.live() {
		return p.overflow(f, cs)
	}
	if p.failing(f) && f.Order == OrderNone && f.Spec.MinScale == 0 && !f.unanswered() {
		return cs // it failed, all that waited was told so, and nobody has asked since
	}
	if p.activatorWakes(f) {
		return cs
	}
	for n := f.live(); n < min(f.desired, f.live()+mostClaims); n++ {
		c := claim{f: f, of: f, nth: n - f.live()}
		switch {
		case n == 0 && f.Waiting > 0:
			patience := time.Duration(p.pol.Patience) * p.pol.TurnWait
			c.late = p.now.Sub(f.starved) >= patience
			c.why = fmt.Sprintf("%d waiting, none awake", f.Waiting)
		case n == 0 && f.Order == OrderWake:
			c.why = "asked for"
		case f.scaled:
			c.class, c.why = kept, fmt.Sprintf("%d awake or on the way, %s", n, f.Scale)
		case n < f.Spec.MinScale:
			c.class, c.why = kept, fmt.Sprintf("%d awake or on the way, min-scale is %d", n, f.Spec.MinScale)
		case f.Waiting > 0 && (n < f.places() || f.awake == 0):
			if f.awake > 0 && !p.due(f, f.WaitingSince.Add(p.pol.ScaleUpAfter)) {
				return cs
			}
			c.class = extra
			c.why = fmt.Sprintf("%d waiting and %d running at %d each want %d, %d awake or on the way",
				f.Waiting, f.Running, f.Spec.Concurrency, f.desired, n)
		case f.pressed:
			if !p.due(f, later(f.PressedSince.Add(p.pol.ScaleUpAfter), f.settledAt(p.pol.LoadSettle))) {
				return cs
			}
			c.class, c.why = extra, fmt.Sprintf("%s; %d awake or on the way", f.pressure, n)
		default:
			return cs // those that run are served already
		}
		f.hot = true // until it has what it wants
		cs = append(cs, c)
	}
	return cs
}

// activatorWakes says whether an activator that holds a grant is about to wake
// an instance of f itself. It gets a moment to begin.
func (p *plan) activatorWakes(f *fn) bool {
	if f.live() > 0 || f.Waiting == 0 {
		return false
	}
	for _, i := range f.is {
		if i.phase != phaseAsleep || !i.Grant.Valid(p.now) {
			continue
		}
		if i.Doing == DoingGrant || !p.due(f, later(f.WaitingSince, i.GrantedAt).Add(p.pol.GrantGrace)) {
			return true
		}
	}
	return false
}

// serve gives c an instance, or makes room for it, or says what it waits for.
func (p *plan) serve(c *claim) {
	if c.f.refused || c.f.gives {
		return
	}
	if why := p.elect(c); why != "" {
		p.wait(c, why)
		return
	}
	f := c.f
	// 1. It failed just now: not yet.
	if !p.due(f, f.RetryAt) {
		p.wait(c, fmt.Sprintf("the last try failed: %s; the next is at %s", f.LastError, f.RetryAt.Format("15:04:05.000")))
		return
	}
	// 2. It never fits, on the nodes that there are.
	if reason, err := p.impossible(f); err != nil {
		if p.w.elastic {
			p.hope(c, reason)
		} else if f.asking() {
			p.fail(f, err, reason)
		} else {
			p.wait(c, reason)
		}
		return
	}
	// 3. One of its own is just going to sleep, or being given or taken a grant: it
	// will be the one to wake.
	o := p.best(c)
	if o == nil || o.self == nil && f.falling+f.passing > 0 {
		p.pend(c)
		return
	}
	// 4. The best way.
	p.follow(c, o)
}

// pend explains a claim that nothing can be done for, and books what is on its way for it.
func (p *plan) pend(c *claim) {
	if c.f.passing > 0 {
		return // a matter of microseconds
	}
	if c.f.falling > 0 {
		p.wait(c, "its own instance is on its way to sleep and is woken after that")
		return
	}
	need := c.f.Need
	if pinned := p.w.pinned - c.f.pinned; pinned > 0 && len(p.w.nodes) == 1 && c.f.Certain && need.Host > p.w.largest-pinned && c.f.asking() {
		p.fail(c.f, noCapacity("%s needs %s of host memory for one instance; of %s, functions with min-scale keep %s: %s, or lower min-scale or %s",
			c.f.Spec.Name, need.Host, p.w.largest, pinned, p.pol.Advice.Memory, api.AnnotationMemory),
			fmt.Sprintf("needs %s, %s of %s are kept by min-scale", need.Host, pinned, p.w.largest))
		return
	}
	n := p.roomiest()
	p.ahead(c, amounts{[]int32{n.host}, bytes{need.Host}})
	at := []int32{n.host}
	if need.Devices > 0 {
		at = append(at, n.gpus...)
	}
	where := ""
	if len(p.w.nodes) > 1 {
		where = " on " + n.name
	}
	p.wait(c, fmt.Sprintf("needs %s, free %s%s and nothing can make room now", amountOf(need), p.room(at), where))
}

// roomiest is the node with most host memory left.
func (p *plan) roomiest() *node {
	best := &p.w.nodes[0]
	for k := range p.w.nodes {
		if n := &p.w.nodes[k]; p.free[n.host]+p.coming[n.host] > p.free[best.host]+p.coming[best.host] {
			best = n
		}
	}
	return best
}

// wait records that c gets nothing yet, once for each function.
func (p *plan) wait(c *claim, reason string) {
	if c.f.waits {
		return
	}
	c.f.waits = true
	p.do(c.f, nil, Action{Kind: Wait, Reason: reason})
}

// impossible says why f can never have an instance on these devices, nil if it
// can. How many GPUs it needs is declared; what it needs of their memory may
// still be a guess. An instance is on one node, so the largest one counts.
func (p *plan) impossible(f *fn) (string, *api.Error) {
	need, largest := f.Need, p.w.largest
	there, of, show := "there are "+largest.String(), "", "shows"
	if len(p.w.nodes) > 1 {
		there, of, show = "the largest node has "+largest.String(), " on one node", "shows, on its largest node,"
	}
	if f.Certain && need.Host > largest {
		return fmt.Sprintf("needs %s of host memory%s, %s", need.Host, of, there),
			noCapacity("%s needs %s of host memory for one instance and may use %s: %s, or lower %s",
				f.Spec.Name, need.Host, largest, p.pol.Advice.Memory, api.AnnotationMemory)
	}
	if need.Devices == 0 {
		return "", nil
	}
	v := p.w.judge(need)
	if v.gpus < need.Devices {
		there := fmt.Sprintf("there are %d", v.gpus)
		if of != "" {
			there = fmt.Sprintf("the largest node has %d", v.gpus)
		}
		return fmt.Sprintf("needs %s%s, %s", many(need.Devices, "GPU"), of, there),
			noCapacity("%s needs %s for one instance and %s %s %d: %s",
				f.Spec.Name, many(need.Devices, "GPU"), p.pol.Advice.Place, show, v.gpus, p.pol.Advice.Devices)
	}
	if v.fits || !f.Certain {
		return "", nil
	}
	if of != "" && v.large >= need.PerDevice {
		return fmt.Sprintf("needs %s on one node, and none has all of that", amountOf(need)),
			noCapacity("%s needs %s on one node and no node of %s has all of that: lower %s or %s",
				f.Spec.Name, amountOf(need), p.pol.Advice.Place, api.AnnotationMemory, api.AnnotationDeviceMemory)
	}
	return fmt.Sprintf("needs %s on each of %s, the largest has %s", need.PerDevice, many(need.Devices, "GPU"), v.large),
		noCapacity("%s needs %s on each of %s and the largest has %s: lower %s",
			f.Spec.Name, need.PerDevice, many(need.Devices, "GPU"), v.large, api.AnnotationDeviceMemory)
}

func noCapacity(format string, args ...any) *api.Error {
	e := api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, format, args...)
	e.NoRetry = true
	return e
}
