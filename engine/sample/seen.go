package sample

import "slices"

// occurrence says how often a token was made; 0: it occurs in the prompt only.
type occurrence struct{ token, count int32 }

// occurrences counts the tokens of a sequence. It follows a sequence that grows
// by counting what is new, and counts anew when it is given another.
type occurrences struct {
	prompt, made []int32 // what is counted; made is a copy
	at           map[int32]int
	list         []occurrence
}

// follow makes the list that of a sequence. Tokens that only the prompt has are in it if withPrompt is.
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

// find returns the place of a token in the list.
func (o *occurrences) find(t int32) int {
	i, ok := o.at[t]
	if !ok {
		i = len(o.list)
		o.at[t] = i
		o.list = append(o.list, occurrence{token: t})
	}
	return i
}

// same reports whether two slices are one.
func same(a, b []int32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
