package serve

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // invalid UTF-8 only
	return dst
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// comma appends a comma, except after an opening bracket.
func comma(dst []byte) []byte {
	if n := len(dst); n > 0 && (dst[n-1] == '[' || dst[n-1] == '{') {
		return dst
	}
	return append(dst, ',')
}

// minLogprob stands for -Inf, as in vLLM.
const minLogprob = -9999

func appendLogprob(dst []byte, p float32) []byte {
	if !(p >= minLogprob) { // NaN too
		p = minLogprob
	}
	return strconv.AppendFloat(dst, float64(p), 'g', -1, 32)
}

func appendInt[T int | int64](dst []byte, n T) []byte { return strconv.AppendInt(dst, int64(n), 10) }

type usage struct {
	prompt, completion, cached int
	thoughts                   int // part of completion; -1: the model does not reason
}

func appendUsage(dst []byte, u usage) []byte {
	dst = appendInt(append(dst, `"usage":{"prompt_tokens":`...), u.prompt)
	dst = appendInt(append(dst, `,"completion_tokens":`...), u.completion)
	dst = appendInt(append(dst, `,"total_tokens":`...), u.prompt+u.completion)
	dst = appendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u.cached)
	if u.thoughts >= 0 {
		dst = appendInt(append(dst, `},"completion_tokens_details":{"reasoning_tokens":`...), u.thoughts)
	}
	return append(dst, '}', '}')
}
