package decide

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/config"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// TestTranscripts runs testdata/*.txt. A file is prose (lines that start with "#"), and blocks of commands, "----" and
// the output. See [sim.command] for the commands.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcribe(t, string(raw))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(raw), got); diff != "" {
				t.Errorf("the transcript differs (-want +got):\n%s", diff)
			}
		})
	}
}

// transcribe runs a transcript and returns it with its output.
func transcribe(t *testing.T, in string) string {
	s := newSim()
	var out, printed strings.Builder
	expecting := false
	flush := func() {
		out.WriteString("----\n" + printed.String() + "\n")
		printed.Reset()
		expecting = false
	}
	for line := range strings.Lines(in) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "----":
			expecting = true
		case expecting && line == "":
			flush()
		case expecting: // the expected output
		case line == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n")
			printed.WriteString(s.command(t, line))
			others := slices.ContainsFunc(s.Devices, func(d inventory.Device) bool { return d.Others > 0 })
			if over := s.over(); over != "" && !others {
				t.Errorf("after %q more is given than there is: %s", line, over)
			}
		}
	}
	if expecting {
		flush()
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// args are the words of a command.
type args struct {
	t     *testing.T
	line  string
	words []string
	named map[string]string
}

func parseArgs(t *testing.T, line string) args {
	a := args{t: t, line: line, named: map[string]string{}}
	for _, w := range strings.Fields(line) {
		if k, v, found := strings.Cut(w, "="); found {
			a.named[k] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a args) word(n int) string {
	if n >= len(a.words) {
		a.t.Fatalf("%q: want more words", a.line)
	}
	return a.words[n]
}

func (a args) bytes(name string) api.Bytes {
	if a.named[name] == "" {
		return 0
	}
	b, err := api.ParseBytes(a.named[name])
	if err != nil {
		a.t.Fatalf("%q: %v", a.line, err)
	}
	return b
}

func (a args) number(name string) int {
	if a.named[name] == "" {
		return 0
	}
	n, err := strconv.Atoi(a.named[name])
	if err != nil {
		a.t.Fatalf("%q: %v", a.line, err)
	}
	return n
}

func (a args) float(name string) float64 {
	if a.named[name] == "" {
		return 0
	}
	v, err := strconv.ParseFloat(a.named[name], 64)
	if err != nil {
		a.t.Fatalf("%q: %v", a.line, err)
	}
	return v
}

func (a args) duration(name string, otherwise time.Duration) time.Duration {
	if a.named[name] == "" {
		return otherwise
	}
	d, err := time.ParseDuration(a.named[name])
	if err != nil {
		a.t.Fatalf("%q: %v", a.line, err)
	}
	return d
}

// command runs one command and returns its output. The commands that declare the world are at [sim.declareFrom]. Others:
//
//	users NAME N                        N requests are running or waiting, from now on
//	arrivals NAME [gap=] [times=]       adds gaps between requests
//	load NAME [kv=] [queue=] [ttft=]    the work inside the runtimes, all together; ttft is for a single request
//	demand NAME [waiting=] [running=] [shared=] [age=]   the same for a single plan
//	failed NAME times [retry=] [error=]
//	order NAME wake|sleep|stop
//	plan                                prints the actions of one plan, and does not run them
//	run DURATION                        runs plans, as time passes, and prints what happened
//	show                                prints instances and devices
func (s *sim) command(t *testing.T, line string) string {
	a := parseArgs(t, line)
	switch a.word(0) {
	case "devices":
		s.devices(a, strings.Fields(line)[1:])
	case "device":
		for d := range s.Devices {
			if dev := &s.Devices[d]; string(dev.ID) == a.word(1) {
				dev.Others = a.bytes("others")
			}
		}
	case "elastic":
		s.Elastic = true
	case "unmanaged":
		s.Unmanaged = append(s.Unmanaged, inventory.UnmanagedPod{Name: a.word(1), Function: api.FunctionName(a.named["of"]), Requests: a.requests("requests"), Candidates: strings.Split(a.named["candidates"], ",")})
	case "room":
		s.room(a)
	case "function":
		s.declareFrom(a)
	case "instance":
		s.place(a)
	case "users":
		n, err := strconv.Atoi(a.word(2))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.use(api.NewFunctionName("", a.word(1)), n)
	case "arrivals":
		f := s.known(a)
		for range a.number("times") {
			f.Past = f.Past.Arrived(a.duration("gap", 0), s.now)
		}
	case "load":
		f := s.known(a)
		s.note(f)
		s.nature[f.Spec.Name].work = Load{KV: a.float("kv"), Waiting: a.number("queue"), TTFT: a.duration("ttft", 0)}
		s.demand(f)
	case "demand":
		f := s.known(a)
		s.note(f)
		f.Waiting, f.Running, f.WaitingSince, f.LastRequest = a.number("waiting"), a.number("running"), s.now.Add(-a.duration("age", 0)), s.now
		f.Shared = a.number("shared")
	case "failed":
		f := s.known(a)
		f.Failures, _ = strconv.Atoi(a.word(2))
		f.Hopeless = a.named["hopeless"] == "true"
		f.FailedOn = nil
		if on := a.named["on"]; on != "" {
			f.FailedOn = []api.DeviceID{api.DeviceID(on)}
		}
		f.FailedAt, f.RetryAt, f.LastError = s.now, s.now.Add(a.duration("retry", 0)), strings.ReplaceAll(a.named["error"], "_", " ")
	case "order":
		s.known(a).Order = map[string]Order{"none": OrderNone, "wake": OrderWake, "sleep": OrderSleep, "stop": OrderStop}[a.word(2)]
	case "plan":
		actions, next := s.records.plan(s.now)
		var b strings.Builder
		for _, act := range actions {
			fmt.Fprintln(&b, act)
			if act.Err != nil {
				fmt.Fprintf(&b, "  %d %s: %s\n", act.Err.Status, act.Err.Code, act.Err.Message)
			}
		}
		if next.IsZero() {
			return b.String() + "look again when something comes\n"
		}
		return b.String() + fmt.Sprintf("look again in %s\n", next.Sub(s.now))
	case "run":
		d, err := time.ParseDuration(a.word(1))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.run(d, nil)
		if lines := s.tell(); len(lines) > 0 {
			return strings.Join(lines, "\n") + "\n"
		}
		return "nothing happens\n"
	case "show":
		return s.show()
	default:
		t.Fatalf("%q: no such command", line)
	}
	return ""
}

func (s *sim) known(a args) *Function {
	f := s.function(api.NewFunctionName("", a.word(1)))
	if f == nil {
		a.t.Fatalf("%q: no such function", a.line)
	}
	return f
}

func (s *sim) devices(a args, words []string) {
	s.Devices = nil
	for _, w := range words {
		name, _, _ := strings.Cut(w, "=")
		d := inventory.Device{ID: api.DeviceID(name), Capacity: a.bytes(name)}
		if node, _, found := strings.Cut(name, "/"); found {
			d.Node = node
		}
		s.Devices = append(s.Devices, d)
	}
}

// declareFrom declares a function. The commands that declare the world are:
//
//	devices host=4Gi gpu0=24Gi          or, of several nodes, n1/host=4Gi n1/gpu0=24Gi n2/host=4Gi
//	device NAME [others=]
//	function NAME [memory=] [gpus=] [gpu-memory=] [min=] [max=] [activation=] [concurrency=] [priority=]
//	              [variant-of=] [cost=] [target-ttft=]
//	              [sleep-after=] [sleep-level=] [gone-after=] [load=] [wake=] [sleep=] [residue1=] [residue2=]
//	              [gpu-residue1=] [gpu-residue2=] [ran-on=NODE,NODE]
//	instance NAME-NNNN awake|asleep|starting|unhealthy [level=] [since=] [devices=] [node=] [granted=] [failures=] [doubt=]
func (s *sim) declareFrom(a args) {
	n := s.declare(api.Function{
		Name:     api.NewFunctionName("", a.word(1)),
		Memory:   api.Memory{Host: a.bytes("memory"), Devices: a.number("gpus"), PerDevice: a.bytes("gpu-memory")},
		MinScale: a.number("min"),
		MaxScale: a.number("max"),

		ActivationScale: a.number("activation"),

		Concurrency: a.number("concurrency"),
		Priority:    a.number("priority"),
		VariantOf:   api.ModelName(a.named["variant-of"]),
		Cost:        a.float("cost"),
		Target:      api.Target{TTFT: a.duration("target-ttft", 0)},
		SleepAfter:  a.duration("sleep-after", config.DefaultSleepAfter),
		SleepLevel:  api.Level(a.number("sleep-level")),
		UnloadAfter: a.duration("gone-after", config.DefaultUnloadAfter),
	}.WithDefaults())
	n.load, n.wake, n.sleep = a.duration("load", n.load), a.duration("wake", n.wake), a.duration("sleep", n.sleep)
	n.residue[1], n.residue[2] = a.bytes("residue1"), a.bytes("residue2")
	n.perResidue[1], n.perResidue[2] = a.bytes("gpu-residue1"), a.bytes("gpu-residue2")
	f := s.function(api.NewFunctionName("", a.word(1)))
	f.Past.Load, f.Past.Wake[1], f.Past.Wake[2], f.Past.Sleep = n.load, n.wake, 2*n.wake, n.sleep
	if a.named["ran-on"] != "" {
		f.Past.Nodes = strings.Split(a.named["ran-on"], ",")
	}
	for l := 1; l < 3; l++ {
		f.Past.Asleep[l] = api.Memory{Host: n.residue[l], Devices: f.Need.Devices, PerDevice: n.perResidue[l]}
	}
}

// requests reads amounts such as cpu:100,pods:1.
func (a args) requests(name string) api.Requests {
	if a.named[name] == "" {
		return nil
	}
	r := api.Requests{}
	for _, part := range strings.Split(a.named[name], ",") {
		resource, text, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			a.t.Fatalf("%q: %v", a.line, err)
		}
		r[resource] = n
	}
	return r
}

// room sets the room for pods' requests on a node.
func (s *sim) room(a args) {
	room := inventory.Room{Node: a.word(1), Free: a.requests("free"), Leaving: a.requests("leaving")}
	s.Rooms = append(slices.DeleteFunc(s.Rooms, func(r inventory.Room) bool { return r.Node == room.Node }), room)
}

// place adds an instance to the world.
func (s *sim) place(a args) {
	id := api.InstanceID(a.word(1))
	name, _, _ := strings.Cut(string(id), "-")
	i := Instance{Since: s.now.Add(-a.duration("since", 0)), From: inventory.Stopped,
		Status: api.InstanceStatus{Instance: id, Function: api.NewFunctionName("", name), State: api.State(a.word(2)), Level: api.Level(a.number("level"))}}
	if a.named["devices"] != "" {
		for _, d := range strings.Split(a.named["devices"], ",") {
			i.Status.Devices = append(i.Status.Devices, api.DeviceID(d))
		}
	}
	i.Status.Node, i.Status.Requests = a.named["node"], a.requests("requests")
	i.Status.Spare, i.Status.Shrunk = a.requests("spare"), a.named["shrunk"] != ""
	if a.named["candidates"] != "" {
		i.Status.Candidates = strings.Split(a.named["candidates"], ",")
	}
	i.Failures, i.Doubt = a.number("failures"), strings.ReplaceAll(a.named["doubt"], "_", " ")
	if i.Status.State == api.Asleep {
		i.Status.Level = max(i.Status.Level, api.Level1)
		i.From = i.Status.Level
	}
	if l := a.number("from"); l > 0 {
		i.From = api.Level(l)
	}
	i.Unloaded, i.Status.Stage = a.named["unloaded"] != "", a.named["stage"]
	if d := a.duration("granted", 0); d > 0 {
		i.Grant = api.Grant{Instance: id, Epoch: 1, Expires: s.now.Add(d)}
	}
	s.weigh(&i)
	s.Instances = append(s.Instances, i)
	s.number++
	s.Sort()
}

// show prints the world.
func (s *sim) show() string {
	var b strings.Builder
	for _, i := range s.Instances {
		fmt.Fprintf(&b, "%s %s", i.Status.Instance, i.Status.State)
		if i.Status.State == api.Asleep {
			fmt.Fprintf(&b, " at level %d", i.Status.Level)
		}
		if len(i.Status.Devices) > 0 {
			fmt.Fprintf(&b, " on %v", i.Status.Devices)
		}
		if i.Grant.Valid(s.now) {
			b.WriteString(", granted")
		}
		b.WriteString("\n")
	}
	for _, l := range s.account(s.now) {
		fmt.Fprintf(&b, "%s: awake %s, rising %s, reserved %s, asleep %s, leaving %s, free %s\n", l.ID, l.Awake, l.Rising, l.Reserved, l.Asleep, l.Leaving, l.Free)
	}
	return b.String()
}
