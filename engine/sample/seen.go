package sample

import "slices"

// occurrence counts a generated token; 0: in the prompt only.
type occurrence struct{ token, count int32 }

// occurrences counts a growing sequence's new tokens only; for another sequence it starts over.
type occurrences struct {
	prompt, made []int32       // counted; made is a copy
	at           map[int32]int // index in list
	list         []occurrence
}

// follow updates the list. withPrompt includes tokens that only the prompt has.
func (o *occurrences) follow(prompt, made []int32, withPrompt bool) {
	if !withPrompt {
		prompt = nil
	}
	if o.at == nil || !same(prompt, o.prompt) || len(made) < len(o.made) || !slices.Equal(made[:len(o.made)], o.made) {
		o.prompt, o.made, o.at, o.list = prompt, o.made[:0], map[int32]int{}, o.list[:0]
		for _, t := range prompt {
			o.find(t)
		}
	}
	for _, t := range made[len(o.made):] {
		o.list[o.find(t)].count++
	}
	o.made = append(o.made, made[len(o.made):]...)
}

func (o *occurrences) find(t int32) int {
	i, ok := o.at[t]
	if !ok {
		i = len(o.list)
		o.at[t] = i
		o.list = append(o.list, occurrence{token: t})
	}
	return i
}

// same compares addresses.
func same(a, b []int32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
