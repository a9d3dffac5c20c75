package route

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/internal/transcript"
	"github.com/rouse-dev/rouse/api"
)

// TestTranscripts drives a set. Commands:
//
//	at DURATION
//	slots N
//	report NAME STATE seq=N [slots=N] [level=N] [adapter=NAME]
//	pick [TIMES [ADAPTER]] | release NAME | served NAME | avoid NAME CODE
//	state
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "testdata/*.txt", func(t *testing.T) func(string, []string) string {
		return (&driver{t: t}).do
	})
}

type driver struct {
	t    *testing.T
	set  Set
	now  time.Duration
	seen map[string]*Instance       // also of instances that left the set
	held map[string][]api.ModelName // the adapters of the slots in use
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (d *driver) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *driver) do(command string, args []string) string {
	now := epoch.Add(d.now)
	switch command {
	case "at":
		v, err := time.ParseDuration(args[0])
		if err != nil {
			d.t.Fatal(err)
		}
		d.now = v
	case "slots":
		d.set.Slots(d.number(args[0]))
	case "report":
		if !d.set.Observe(d.status(args), now) {
			return "out of date"
		}
	case "pick":
		times := 1
		if len(args) > 0 {
			times = d.number(args[0])
		}
		return d.pick(times, api.ModelName(strings.Join(args[min(1, len(args)):], "")), now)
	case "release":
		held := d.held[args[0]]
		d.set.Release(d.find(args[0]), held[0])
		d.held[args[0]] = held[1:]
	case "served":
		d.set.Served(d.find(args[0]))
	case "avoid":
		return "until " + d.set.Avoid(d.find(args[0]), args[1], now).Sub(epoch).String()
	case "state":
		return d.state(now)
	default:
		d.t.Fatalf("unknown command %s", command)
	}
	return ""
}

func (d *driver) status(args []string) api.InstanceStatus {
	st := api.InstanceStatus{Instance: api.InstanceID(args[0]), State: api.State(args[1]), Endpoint: "unix:/s"}
	for _, o := range args[2:] {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "seq":
			st.Seq = uint64(d.number(value))
		case "slots":
			st.Concurrency = d.number(value)
		case "level":
			st.Level = api.Level(d.number(value))
		case "way":
			way, err := time.ParseDuration(value)
			if err != nil {
				d.t.Fatal(err)
			}
			st.Way = way
		case "cost":
			st.Cost = float64(d.number(value))
		case "adapter":
			st.Adapters = append(st.Adapters, api.ModelName(value))
		}
	}
	return st
}

func (d *driver) find(name string) *Instance {
	if i := d.seen[name]; i != nil {
		return i
	}
	for _, i := range d.set.All() {
		if string(i.ID) == name {
			return i
		}
	}
	d.t.Fatalf("no instance %s", name)
	return nil
}

func (d *driver) pick(times int, adapter api.ModelName, now time.Time) string {
	var got []string
	for range times {
		i, _ := d.set.PickFor(now, Want{Adapter: adapter}, nil)
		if i == nil {
			got = append(got, "none")
			continue
		}
		if d.seen == nil {
			d.seen, d.held = make(map[string]*Instance), make(map[string][]api.ModelName)
		}
		d.seen[string(i.ID)] = i
		d.held[string(i.ID)] = append(d.held[string(i.ID)], adapter)
		got = append(got, string(i.ID))
	}
	return strings.Join(got, " ")
}

func (d *driver) state(now time.Time) string {
	var b strings.Builder
	for _, st := range d.set.Reports() {
		i := d.find(string(st.Instance))
		fmt.Fprintf(&b, "%s %s %d/%d\n", i.ID, st.State, i.running, i.slots)
	}
	var sleep []string
	sleepers, _ := d.set.Asleep(now, Want{})
	for _, i := range sleepers {
		sleep = append(sleep, string(i.ID))
	}
	best, _ := d.set.Best()
	fmt.Fprintf(&b, "awake: %t; asleep: %s; best: %s", d.set.Awake(now), strings.Join(sleep, " "), best.Instance)
	return b.String()
}

func BenchmarkPick(b *testing.B) {
	var s Set
	for n := range 8 {
		s.Observe(api.InstanceStatus{Instance: api.InstanceID(strconv.Itoa(n)), State: api.Awake, Seq: 1, Concurrency: 8, Endpoint: "unix:/s"}, epoch)
	}
	for b.Loop() {
		i, _ := s.PickFor(epoch, Want{}, nil)
		s.Release(i, "")
	}
}

// TestInstanceWithAFullShare: an instance at which a stream gave way is awake, and is tried again soon each time.
func TestInstanceWithAFullShare(t *testing.T) {
	s := fleet(1, 1)
	for n, now := 0, epoch; n < 5; n++ {
		again := s.Avoid(s.All()[0], api.CodeMoved, now)
		if !s.Awake(now) || again.Sub(now) != avoidFirst {
			t.Errorf("time %d: awake %v, tried again after %s; want an awake one, and %s", n, s.Awake(now), again.Sub(now), avoidFirst)
		}
		now = again
	}
}
