package sched_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/sched"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata with what the scheduler does")

// TestTranscripts plays testdata/*.txt: prose, commands after "> ", and the answer to each. A token is a letter; "?"
// is one that only the worker knows. The siblings of a are a1, a2 and so on. The commands reset, stats and abort NAME
// need no more words; step is schedule and update; the others are:
//
//	new blocks=N size=N budget=N seats=N [depth=N] [prefix] [draft=N] [patience=N] [aging=N]
//	add NAME prompt=N|text=LETTERS max=N     queue a sequence; a letter is a token, a prompt=N is like no other
//	    [priority=N] [tenant=NAME] [salt=TEXT] [siblings=N] [score] [pool] [lockstep]
//	schedule                                 a batch goes to the worker
//	update [stop=NAME,…] [NAME=LETTERS …]    the oldest batch comes back: a token "." for each, or those; the named ones end
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(strings.Split(string(data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// play returns the transcript with every answer replaced by the scheduler's. An answer is the text between a command and
// the next empty line.
func play(t *testing.T, script string) string {
	var out strings.Builder
	p := &player{t: t}
	answer := false
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			fmt.Fprintf(&out, "%s\n%s", line, p.do(strings.Fields(command)))
			answer = true
		case line == "" || !answer:
			answer = false
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

type player struct {
	t       *testing.T
	pool    *block.Pool
	sched   *sched.Scheduler
	names   []string // by ID
	flights []flown
	args    map[string]string
}

// flown is a batch in flight: its step, and the sequences that get a token.
type flown struct {
	step uint64
	owed []owed
}

type owed struct {
	id   sched.ID
	pool bool
}

func (p *player) n(key string, otherwise int) int {
	v, ok := p.args[key]
	if !ok && otherwise >= 0 {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		p.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

func (p *player) has(key string) bool { _, ok := p.args[key]; return ok }

func (p *player) do(words []string) string {
	p.args = map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		p.args[k] = v
	}
	out := ""
	switch words[0] {
	case "new":
		p.pool = block.New(p.n("blocks", -1), p.n("size", -1))
		p.sched = sched.New(sched.Config{
			Budget: p.n("budget", -1), Seats: p.n("seats", -1), Depth: p.n("depth", 1), Prefix: p.has("prefix"),
			Draft: p.n("draft", 0),
		}, p.pool)
		p.sched.Tune(p.n("patience", 0), p.n("aging", 0), 0)
		p.names, p.flights = []string{"nobody"}, nil
		return ""
	case "add":
		return p.add(words[1])
	case "abort":
		out = fmt.Sprintf("was there: %v\n", p.sched.Abort(p.id(words[1])))
	case "reset":
		p.sched.Reset()
		p.flights = nil
	case "schedule":
		out = p.schedule()
	case "update":
		p.update()
	case "step":
		out = p.schedule()
		p.update()
	case "stats":
		return strings.Trim(fmt.Sprintf("%+v", p.sched.Stats()), "{}") + "\n"
	default:
		p.t.Fatalf("unknown command %q", words)
	}
	if err := p.sched.Check(); err != nil {
		p.t.Fatalf("%s: %v", words, err)
	}
	s := p.sched.Stats()
	out += fmt.Sprintf("running %d, waiting %d, blocks %d of %d", s.Running, s.Waiting, s.BlocksUsed, s.BlocksTotal)
	if n := p.sched.InFlight(); n > 0 {
		out += fmt.Sprintf(", in flight %d", n)
	}
	return out + "\n"
}

func (p *player) id(name string) sched.ID {
	i := slices.Index(p.names, name)
	if i < 0 {
		p.t.Fatalf("nobody is called %s", name)
	}
	return sched.ID(i)
}

func (p *player) add(name string) string {
	id, n := sched.ID(len(p.names)), p.n("siblings", 1)
	if i := slices.Index(p.names, name); i >= 0 {
		id = sched.ID(i)
	} else {
		for i := range n {
			p.names = append(p.names, name+strings.TrimPrefix(fmt.Sprint(i), "0"))
		}
	}
	var prompt []int32
	for _, c := range p.args["text"] {
		prompt = append(prompt, c)
	}
	if p.has("prompt") {
		for i := range p.n("prompt", -1) {
			prompt = append(prompt, int32(id)<<16+int32(i))
		}
	}
	r := sched.Request{
		ID: id, Prompt: prompt, Max: p.n("max", 0), Priority: p.n("priority", 0), Tenant: p.args["tenant"], Siblings: n,
		Root: block.Key{Salt: p.args["salt"]}.Root(), Score: p.has("score"), Pool: p.has("pool"), Lockstep: p.has("lockstep"),
	}
	if err := p.sched.Add(r); err != nil {
		return err.Error() + "\n"
	}
	return ""
}

func (p *player) schedule() string {
	var out strings.Builder
	preempted := p.sched.Stats().Preemptions
	batch := p.sched.Schedule()
	if n := p.sched.Stats().Preemptions - preempted; n > 0 {
		fmt.Fprintf(&out, "preempted: %d\n", n)
	}
	if batch == nil {
		return out.String() + "nothing\n"
	}
	for _, id := range batch.Ends {
		fmt.Fprintf(&out, "%s: forgotten\n", p.names[id])
	}
	for _, c := range batch.Copies {
		fmt.Fprintf(&out, "copy block %d to %d\n", c.From, c.To)
	}
	f := flown{step: batch.Step}
	for _, item := range batch.Items {
		if item.Sample {
			f.owed = append(f.owed, owed{item.ID, item.Pool})
		}
		fmt.Fprintln(&out, p.item(item))
	}
	p.flights = append(p.flights, f)
	return out.String()
}

// item returns one item in words, without the usual values; for instance, it is usual that the worker has not seen
// the last block only.
func (p *player) item(item sched.Item) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: ", p.names[item.ID])
	first, last := item.Pos, item.Pos+len(item.Tokens)-1
	if first == last {
		fmt.Fprintf(&out, "token %d", first)
	} else {
		fmt.Fprintf(&out, "tokens %d to %d", first, last)
	}
	switch guesses := len(item.Tokens) - item.Draft; {
	case item.Tokens[0] == sched.Unknown:
		out.WriteString(" ?")
	case item.Draft > 0:
		fmt.Fprintf(&out, " %s, guess %s", letters(item.Tokens[:guesses]), letters(item.Tokens[guesses:]))
	}
	fmt.Fprintf(&out, ", blocks %v", item.Blocks)
	if item.New != len(item.Blocks) && item.New > 0 {
		fmt.Fprintf(&out, " (%d new)", item.New)
	}
	for _, w := range []struct {
		is   bool
		word string
	}{{item.Begin, "begin"}, {item.Score, "score"}, {item.Pool, "pool"}, {item.Sample, "sample"}} {
		if w.is {
			out.WriteString(", " + w.word)
		}
	}
	if item.Begin != (item.New == len(item.Blocks)) && item.Begin {
		p.t.Errorf("sequence %d begins with %d of %d blocks", item.ID, item.New, len(item.Blocks))
	}
	return out.String()
}

func letters(tokens []int32) string {
	var out strings.Builder
	for _, t := range tokens {
		out.WriteRune(t)
	}
	return out.String()
}

func (p *player) update() {
	if len(p.flights) == 0 {
		return
	}
	f := p.flights[0]
	p.flights = p.flights[1:]
	stop := strings.Split(p.args["stop"], ",")
	var results []sched.Result
	for _, o := range f.owed {
		name := p.names[o.id]
		r := sched.Result{ID: o.id, Done: slices.Contains(stop, name)}
		if text, ok := p.args[name]; ok {
			for _, c := range text {
				r.Tokens = append(r.Tokens, c)
			}
		} else if !o.pool {
			r.Tokens = []int32{'.'}
		}
		results = append(results, r)
	}
	if !p.sched.Update(f.step, results) {
		p.t.Fatalf("the results of step %d are not expected", f.step)
	}
}
