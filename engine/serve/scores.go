package serve

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine/sample"
)

// scoreMark separates a token, its log probability, and its alternatives' ids and log probabilities.
const scoreMark = "*"

// appendScores is bit-exact: another server sends equal bytes.
func appendScores(dst []byte, c *sample.Choice) []byte {
	dst = appendBits(dst, c.Logprob)
	for _, t := range c.Top {
		dst = appendBits(strconv.AppendInt(append(dst, scoreMark...), int64(t.Token), 10), t.Logprob)
	}
	return dst
}

func appendBits(dst []byte, logprob float32) []byte {
	return strconv.AppendUint(append(dst, scoreMark...), uint64(math.Float32bits(logprob)), 36)
}

func parseChoice(word string, scored bool) (c sample.Choice, ok bool) {
	if !scored {
		c.Token, ok = parseToken(word)
		return c, ok
	}
	words := strings.Split(word, scoreMark)
	if len(words)%2 != 0 {
		return c, false
	}
	for pair := range slices.Chunk(words, 2) {
		token, ok := parseToken(pair[0])
		bits, err := strconv.ParseUint(pair[1], 36, 32)
		logprob := math.Float32frombits(uint32(bits))
		if !ok || err != nil || math.IsInf(float64(logprob), 1) { // +Inf is invalid
			return c, false
		}
		c.Top = append(c.Top, sample.Alternative{Token: token, Logprob: logprob})
	}
	c.Token, c.Logprob, c.Top = c.Top[0].Token, c.Top[0].Logprob, c.Top[1:]
	return c, true
}

func parseToken(word string) (token int32, ok bool) {
	n, err := strconv.ParseInt(word, 10, 32)
	return int32(n), err == nil && n >= 0
}
