package sample

import "slices"

// occurrence is the number of times that a token was generated; 0: it occurs in the prompt only.
type occurrence struct{ token, count int32 }

// occurrences counts the tokens of a sequence. For a growing sequence it counts only the new tokens; for another
// sequence it starts over.
type occurrences struct {
	prompt, made []int32 // the counted tokens; made is a copy
	at           map[int32]int
	list         []occurrence
}

// follow updates the list to a sequence. withPrompt includes tokens that only the prompt has.
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

// find returns the index of a token in the list.
func (o *occurrences) find(t int32) int {
	i, ok := o.at[t]
	if !ok {
		i = len(o.list)
		o.at[t] = i
		o.list = append(o.list, occurrence{token: t})
	}
	return i
}

// same reports whether two slices are the same memory.
func same(a, b []int32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
