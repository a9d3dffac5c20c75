package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/internal/transcript"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/fair"
)

// TestTranscripts drives a queue. Commands:
//
//	limit N BYTES                 set the bounds
//	at DURATION                   set the clock
//	enter NAME [client=NAME] [priority=N] [bytes=N] [cost=N] [deadline=DURATION] [expected=DURATION]
//	next                          take out the next, and charge its cost (1 unless it says otherwise)
//	settle NAME COST              it has ended
//	putback NAME                  it has not, and returns
//	leave NAME | ticket NAME | served | retry DURATION | state
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "testdata/*.txt", func(t *testing.T) func(string, []string) string {
		d := &driver{t: t, entries: make(map[string]*entry), costs: make(map[string]int)}
		return d.do
	})
}

type driver struct {
	t       *testing.T
	queue   waitQueue
	now     time.Duration
	entries map[string]*entry
	costs   map[string]int
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (d *driver) duration(s string) time.Duration {
	v, err := time.ParseDuration(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

func (d *driver) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *driver) name(e *entry) string {
	for name, other := range d.entries {
		if e == other {
			return name
		}
	}
	return "nobody"
}

func (d *driver) do(command string, args []string) string {
	now := epoch.Add(d.now)
	switch command {
	case "limit":
		d.queue.Limit(api.Hold{Capacity: d.number(args[0]), MaxBytes: api.Bytes(d.number(args[1]))})
	case "at":
		d.now = d.duration(args[0])
	case "enter":
		return d.enter(args[0], args[1:], now)
	case "next":
		e := d.queue.Next()
		if e == nil {
			return "nobody"
		}
		name := d.name(e)
		d.queue.order.Charge(clientOf(0, e.Client), e.Priority, float64(d.costs[name]))
		return name
	case "settle":
		d.settle(args[0], d.number(args[1]))
	case "leave":
		if !d.queue.Leave(d.entries[args[0]]) {
			return "was not in"
		}
	case "ticket":
		d.entries[args[0]] = &entry{Ticket: d.queue.Ticket()}
	case "putback":
		d.settle(args[0], 0)
		d.queue.PutBack(d.entries[args[0]], now)
	case "served":
		d.queue.Served(now)
	case "retry":
		return d.queue.RetryAfter(d.duration(args[0])).String()
	case "state":
		return fmt.Sprintf("%d wait, %s, %d tokens, oldest %s", d.queue.Len(), d.queue.Bytes(), d.queue.Tokens(), d.queue.Oldest(now))
	default:
		d.t.Fatalf("unknown command %s", command)
	}
	return ""
}

func (d *driver) settle(name string, cost int) {
	e := d.entries[name]
	d.queue.order.Settle(clientOf(0, e.Client), e.Priority, float64(cost-d.costs[name]))
}

func (d *driver) enter(name string, options []string, now time.Time) string {
	e := &entry{}
	d.costs[name] = 1
	var expected time.Duration
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "priority":
			e.Priority = d.number(value)
		case "client":
			e.Client = value
		case "bytes":
			e.Bytes = api.Bytes(d.number(value))
			e.Tokens = api.Tokens(e.Bytes / 4)
		case "cost":
			d.costs[name] = d.number(value)
		case "deadline":
			e.Deadline = epoch.Add(d.duration(value))
		case "expected":
			expected = d.duration(value)
		}
	}
	d.entries[name] = e
	out, why, ok := d.queue.Enter(e, now, expected)
	if !ok {
		return "refused: " + string(why)
	}
	var names []string
	for _, o := range out {
		names = append(names, d.name(o))
	}
	if len(names) > 0 {
		return "goes: " + strings.Join(names, " ")
	}
	return ""
}

func TestOfferReachesOnlyWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := waitQueue{}
		queue.Limit(api.Hold{Capacity: 2, MaxBytes: 10})
		gaveUp := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		leaves, stays := &entry{}, &entry{}
		leaves.Until(ctx)
		stays.Until(t.Context())
		for _, e := range []*entry{leaves, stays} {
			if _, why, ok := queue.Enter(e, time.Now(), 0); !ok {
				t.Fatalf("refused: %s", why)
			}
		}
		slot, got := &Slot{}, make(chan *Slot)
		go func() {
			v, _ := stays.Wait()
			got <- v
		}()
		cancel(gaveUp)
		if _, ok := leaves.Wait(); ok {
			t.Error("who left was handed something")
		}
		e := queue.Next() // taken out before the leaver could report it
		if e.Offer(slot) {
			t.Error("an offer to who left was taken")
		}
		if queue.Leave(leaves) {
			t.Error("the leaver was still in the queue")
		}
		if !queue.Next().Offer(slot) {
			t.Error("an offer to who waits was not taken")
		}
		if v := <-got; v != slot {
			t.Errorf("got %p, want %p", v, slot)
		}
	})
}

// TestAgainstSlowTwin compares the queue with a slice that is searched and sorted each time.
func TestAgainstSlowTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var queue waitQueue
	queue.Limit(api.Hold{Capacity: 50, MaxBytes: 1000})
	var twin, out []*entry
	refused, displaced := 0, 0
	before := func(a, b *entry) int {
		if pa, pb := fair.Clamp(a.Priority), fair.Clamp(b.Priority); pa != pb {
			return pb - pa
		}
		return int(a.Ticket) - int(b.Ticket)
	}
	for step := range 20000 {
		switch op := r.IntN(5); {
		case op <= 1:
			e := &entry{Priority: r.IntN(21) - 10, Bytes: api.Bytes(r.IntN(40))}
			fits := func(all []*entry) bool { return len(all) < 50 && bytesOf(all)+e.Bytes <= 1000 }
			gone, why, ok := queue.Enter(e, epoch, 0)
			for _, v := range gone {
				if v.Priority >= min(e.Priority, 0) || fits(twin) {
					t.Fatalf("step %d: one of priority %d went for one of %d, which had room: %t", step, v.Priority, e.Priority, fits(twin))
				}
				twin = slices.DeleteFunc(twin, func(o *entry) bool { return o == v })
			}
			least := slices.DeleteFunc(slices.Clone(twin), func(o *entry) bool { return fair.Clamp(o.Priority) < fair.Clamp(min(e.Priority, 0)) })
			if ok && !fits(twin) || !ok && (len(gone) > 0 || fits(least)) {
				t.Fatalf("step %d: %+v enters: %t %s, for %d others", step, e, ok, why, len(gone))
			}
			if displaced += len(gone); ok {
				twin = append(twin, e)
			} else {
				refused++
			}
		case op == 2:
			want := (*entry)(nil)
			if len(twin) > 0 {
				slices.SortFunc(twin, before)
				want, twin = twin[0], twin[1:]
				out = append(out, want)
			}
			if got := queue.Next(); got != want {
				t.Fatalf("step %d: next: got %+v, want %+v", step, got, want)
			}
		case op == 3 && len(out) > 0:
			i := r.IntN(len(out))
			queue.PutBack(out[i], epoch)
			twin = append(twin, out[i])
			out = slices.Delete(out, i, i+1)
		case op == 4 && len(twin) > 0:
			i := r.IntN(len(twin))
			if !queue.Leave(twin[i]) {
				t.Fatalf("step %d: an entry in the queue could not leave", step)
			}
			twin = slices.Delete(twin, i, i+1)
		}
		if queue.Len() != len(twin) || queue.Bytes() != bytesOf(twin) {
			t.Fatalf("step %d: got %d entries of %d bytes, want %d of %d", step, queue.Len(), queue.Bytes(), len(twin), bytesOf(twin))
		}
	}
	if refused < 100 || displaced < 100 {
		t.Errorf("%d were refused and %d displaced: too few to tell", refused, displaced)
	}
}

func bytesOf(all []*entry) (sum api.Bytes) {
	for _, e := range all {
		sum += e.Bytes
	}
	return sum
}

// TestFirstShared: among some clients' entries the next one comes first, whatever the other clients have.
func TestFirstShared(t *testing.T) {
	t.Parallel()
	var q waitQueue
	q.Limit(api.Hold{Capacity: 10, MaxBytes: api.MiB})
	enter := func(client string, priority int) *entry {
		e := &entry{Client: client, Priority: priority}
		e.Until(t.Context())
		if _, why, ok := q.Enter(e, epoch, 0); !ok {
			t.Fatal(why)
		}
		return e
	}
	q.order.Charge(clientOf(0, "b"), 0, 100) // it was served before
	urgent, c, b := enter("a", 1), enter("c", 0), enter("b", 0)
	for _, tc := range []struct {
		of   string
		want *entry
	}{{"abc", urgent}, {"bc", c}, {"b", b}, {"", nil}, {"d", nil}} {
		if got := q.firstShared(0, func(e *entry) bool { return strings.Contains(tc.of, e.Client) }); got != tc.want {
			t.Errorf("of %q: %+v, want %+v", tc.of, got, tc.want)
		}
	}
	picky := &entry{Client: "c", Want: route.Want{Only: func(string) bool { return true }}}
	picky.Until(t.Context())
	if _, why, ok := q.Enter(picky, epoch, 0); !ok || q.picky != 1 {
		t.Fatal(why, q.picky)
	}
	if got := q.firstShared(0, func(e *entry) bool { return e.Want.Only != nil }); got != picky {
		t.Errorf("of those that are picky: %+v, want the second of c", got)
	}
	if q.Leave(picky); q.picky != 0 {
		t.Errorf("%d are picky, want none", q.picky)
	}
	if got := q.Clients(); len(got) != 3 || got["b"] != 1 {
		t.Errorf("%v, want one entry of each", got)
	}
}
