package vllmsim

import (
	"math"
)

// logprob is made up: the same wherever a token stands.
func logprob(t Token) float64 {
	return -math.Round(float64(uint64(t)*2654435761%1000))/1000 - 0.001
}

func chatLogprobs(a *ask, tokens []Token) any {
	if a.logprobs < 0 || len(tokens) == 0 {
		return nil
	}
	one := func(t Token, less float64) object {
		text := Piece(t)
		bytes := make([]int, len(text))
		for i := range text {
			bytes[i] = int(text[i])
		}
		return object{"token": text, "logprob": logprob(t) - less, "bytes": bytes}
	}
	content := make([]any, 0, len(tokens))
	for _, t := range tokens {
		entry, top := one(t, 0), []any{}
		for k := range a.logprobs {
			other := t
			if k > 0 {
				other = (t + Token(k)) % Vocabulary
			}
			top = append(top, one(other, float64(k)))
		}
		entry["top_logprobs"] = top
		content = append(content, entry)
	}
	return object{"content": content}
}

func textLogprobs(a *ask, tokens []Token) any {
	if a.logprobs < 0 || len(tokens) == 0 {
		return nil
	}
	tops := []map[string]float64{}
	for _, t := range tokens {
		top := map[string]float64{Piece(t): logprob(t)}
		for k := 1; k < a.logprobs; k++ {
			other := (t + Token(k)) % Vocabulary
			top[Piece(other)] = logprob(t) - float64(k)
		}
		tops = append(tops, top)
	}
	return object{"top_logprobs": tops}
}
