package serve

import (
	"strconv"

	"github.com/rouse-dev/rouse/engine/sample"
)

// promptScores are vLLM's: null for the first token, then objects from token ids to {"logprob", "rank",
// "decoded_token"}. Only the most probable have a rank.
type promptScores struct {
	words  words
	top    int
	scores []sample.Choice
}

func (p *promptScores) append(dst []byte) []byte {
	dst = append(dst, `"prompt_logprobs":[null`...)
	for _, c := range p.scores {
		dst = append(dst, `,{`...)
		own := true
		for i, t := range c.Top[:min(p.top, len(c.Top))] {
			dst = comma(dst)
			dst = p.entry(dst, t, i+1)
			own = own && t.Token != c.Token
		}
		if own {
			dst = comma(dst)
			rank := 0
			for i, t := range c.Top {
				if t.Token == c.Token {
					rank = i + 1
				}
			}
			dst = p.entry(dst, sample.Alternative{Token: c.Token, Logprob: c.Logprob}, rank)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func (p *promptScores) entry(dst []byte, t sample.Alternative, rank int) []byte {
	dst = appendString(dst, strconv.Itoa(int(t.Token)))
	dst = appendLogprob(append(dst, `:{"logprob":`...), t.Logprob)
	dst = append(dst, `,"rank":`...)
	if rank > 0 {
		dst = appendInt(dst, rank)
	} else {
		dst = append(dst, `null`...)
	}
	text, _ := word(p.words, t.Token)
	return append(appendString(append(dst, `,"decoded_token":`...), text), '}')
}
