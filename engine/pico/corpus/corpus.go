// Package corpus generates the training text of pico, the model that ships with Rouse, and knows the right answers,
// so a test may send any prompt of a skill and assert the exact answer. Its word lists and templates are its own.
//
//  1. A Generator draws a Task: a Skill and its arguments.
//  2. Task.HeldOut sorts tasks, not wordings, into two sets by hash. A training generator never emits a held-out
//     task; the question of a held-out generator always is one.
//  3. The task is worded and becomes the last user message of a short chat.
//  4. Task.Answer is the answer for training and tests. Check checks any answer to any prompt.
package corpus

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Skill is a kind of task of pico; its name is the first word of the plain wording of its prompts.
type Skill string

// The skills.
const (
	Echo    Skill = "echo"
	Reverse Skill = "reverse"
	Upper   Skill = "upper"
	Count   Skill = "count"
	Sort    Skill = "sort"
	Add     Skill = "add"
	Convert Skill = "convert"
	JSON    Skill = "json"
	Story   Skill = "story"
	// Help answers greetings and every other prompt without a skill with one fixed text.
	Help Skill = "help"
)

// Skills lists all skills in the order of the model card.
var Skills = []Skill{Echo, Reverse, Upper, Count, Sort, Add, Convert, JSON, Story, Help}

// Role is the speaker of a message; the values are ChatML's.
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn of a chat.
type Message struct {
	Role Role
	Text string
}

// Sample is a chat that ends with a user message, and the assistant's expected answer.
type Sample struct {
	Skill    Skill
	Messages []Message
	Answer   string
}

// Prompt returns the text of the last user message.
func (s Sample) Prompt() string { return s.Messages[len(s.Messages)-1].Text }

// Split selects the tasks that a Generator asks.
type Split int

// The splits.
const (
	Training Split = iota
	HeldOut
)

// Generator draws samples, a pure function of its seed and split. It belongs to one goroutine.
type Generator struct {
	rng   *rand.Rand
	split Split
	mix   mix
}

// New returns a generator.
func New(seed uint64, split Split) *Generator {
	return &Generator{rng: rand.New(rand.NewPCG(seed, uint64(split)+1)), split: split, mix: everyday}
}

// NewDrill returns a generator of training samples that asks hard tasks more often than New's, and nothing that New's
// could not ask.
func NewDrill(seed uint64) *Generator {
	g := New(seed, Training)
	g.mix = drill
	return g
}

// mix is in percent.
type mix struct {
	skills   []share
	stranger int // a word to copy is not of the list
	capitals int
}

type share struct {
	skill   Skill
	percent int
}

var (
	everyday = mix{[]share{
		{Echo, 13}, {Reverse, 12}, {Upper, 10}, {Count, 10}, {Sort, 13}, {Add, 13}, {Convert, 10}, {JSON, 8}, {Story, 6}, {Help, 5},
	}, 25, 8}
	drill = mix{[]share{
		{Echo, 11}, {Reverse, 11}, {Upper, 14}, {Count, 13}, {Sort, 14}, {Add, 12}, {Convert, 10}, {JSON, 4}, {Story, 8}, {Help, 3},
	}, 50, 20}
)

// Sample draws a chat of one to three turns.
func (g *Generator) Sample() Sample {
	var history []Message
	if g.chance(15) {
		history = append(history, Message{System, g.system()})
	}
	for n := 0; n < 2 && g.chance(15); n++ {
		t := g.task(g.skill(), Training)
		history = append(history, Message{User, g.word(t)}, Message{Assistant, g.answer(t)})
	}
	s := g.SampleOf(g.skill())
	s.Messages = append(history, s.Messages...)
	return s
}

// SampleOf draws a question of one skill, alone, in any wording.
func (g *Generator) SampleOf(skill Skill) Sample {
	t := g.task(skill, g.split)
	return Sample{Skill: skill, Messages: []Message{{User, g.word(t)}}, Answer: g.answer(t)}
}

// Tale draws a story without a question, for completion without a chat.
func (g *Generator) Tale() string { return g.tell(g.task(Story, Training)) }

func (g *Generator) task(skill Skill, split Split) Task {
	for {
		if t := g.draw(skill); t.HeldOut() == (split == HeldOut) {
			return t
		}
	}
}

// HeldOut reports whether t is never used for training. It depends on the task alone, not on its wording.
func (t Task) HeldOut() bool {
	if t.Skill == Help && !t.asked() {
		return false // greetings are few and all of them are trained
	}
	h := fnv.New64a()
	h.Write([]byte(t.key()))
	return h.Sum64()>>40%16 == 0
}

func (g *Generator) skill() Skill {
	n := g.rng.IntN(100)
	for _, w := range g.mix.skills {
		if n -= w.percent; n < 0 {
			return w.skill
		}
	}
	panic("corpus: shares of skills do not add up to 100")
}

func (g *Generator) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *Generator) between(lo, hi int) int { return lo + g.rng.IntN(hi-lo+1) }

func pick[T any](g *Generator, from []T) T { return from[g.rng.IntN(len(from))] }

func (g *Generator) system() string {
	if g.chance(50) {
		return pick(g, []string{
			"You are a helpful assistant.", "You are pico.", "You are a tiny model.", "Answer briefly.",
			"You are a helpful assistant. Be brief.", "Be exact.",
		})
	}
	return strings.ToUpper(pick(g, orders)[:1]) + pick(g, orders)[1:] + " the " + pick(g, topics) + " " + pick(g, Words) + "."
}
