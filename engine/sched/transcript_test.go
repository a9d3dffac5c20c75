package sched_test

import (
	"flag"
	"fmt"
	"maps"
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

// TestTranscripts plays testdata/*.txt: prose, commands after "> ", and what each answers.
//
//	new blocks=N size=N budget=N seats=N
//	add NAME prompt=N max=N [every]      queue a sequence
//	step [stop=NAME,NAME]                one step; the named ones end with the token they get
//	abort NAME
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

// play returns the transcript with every answer replaced by the scheduler's. An answer is what follows a command until an empty line.
func play(t *testing.T, script string) string {
	var out strings.Builder
	p := &player{names: map[string]sched.ID{}}
	answer := false
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			fmt.Fprintf(&out, "%s\n%s", line, p.do(t, strings.Fields(command)))
			answer = true
		case line == "" || !answer:
			answer = false
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

type player struct {
	pool  *block.Pool
	sched *sched.Scheduler
	names map[string]sched.ID
	size  map[string]int // known tokens of unfinished sequences
	max   map[string]int
}

func (p *player) do(t *testing.T, words []string) string {
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	n := func(key string) int {
		v, err := strconv.Atoi(args[key])
		if err != nil {
			t.Fatalf("%s: %s: %v", strings.Join(words, " "), key, err)
		}
		return v
	}
	switch words[0] {
	case "new":
		p.pool = block.New(n("blocks"), n("size"))
		p.sched = sched.New(sched.Config{Budget: n("budget"), Seats: n("seats")}, p.pool)
		p.names, p.size, p.max = map[string]sched.ID{}, map[string]int{}, map[string]int{}
		return ""
	case "add":
		name := words[1]
		if p.names[name] == 0 {
			p.names[name] = sched.ID(len(p.names) + 1)
		}
		_, every := args["every"]
		if err := p.sched.Add(sched.Request{ID: p.names[name], Prompt: make([]int32, n("prompt")), Max: n("max"), Every: every}); err != nil {
			return err.Error() + "\n"
		}
		p.size[name], p.max[name] = n("prompt"), n("max")
		return ""
	case "abort":
		answer := fmt.Sprintf("was there: %v\n", p.sched.Abort(p.names[words[1]]))
		delete(p.size, words[1])
		return answer + p.state()
	case "step":
		return p.step(strings.Split(args["stop"], ",")) + p.state()
	}
	t.Fatalf("unknown command %q", words)
	return ""
}

func (p *player) step(stop []string) string {
	var out strings.Builder
	var results []sched.Result
	preempted := p.sched.Stats().Preemptions
	batch := p.sched.Schedule()
	if n := p.sched.Stats().Preemptions - preempted; n > 0 {
		fmt.Fprintf(&out, "preempted: %d\n", n)
	}
	for _, item := range batch.Items {
		name := p.name(item.ID)
		fmt.Fprintf(&out, "%s: tokens %d to %d, blocks %v", name, item.Pos, item.Pos+len(item.Tokens)-1, item.Blocks)
		if item.Logits {
			fmt.Fprint(&out, ", logits")
		}
		if item.Sample {
			fmt.Fprint(&out, ", sample")
			p.size[name]++
			done := slices.Contains(stop, name) || p.size[name] == p.max[name]
			results = append(results, sched.Result{ID: item.ID, Token: 1, Done: done})
			if done {
				fmt.Fprint(&out, ", done")
				delete(p.size, name)
			}
		}
		fmt.Fprintln(&out)
	}
	p.sched.Update(results)
	return out.String()
}

func (p *player) name(id sched.ID) string {
	for name, other := range maps.All(p.names) {
		if id == other {
			return name
		}
	}
	return "?"
}

func (p *player) state() string {
	s := p.sched.Stats()
	if err := p.pool.Check(); err != nil {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("running %d, waiting %d, blocks %d of %d\n", s.Running, s.Waiting, s.BlocksUsed, s.BlocksTotal)
}
