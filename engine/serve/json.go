package serve

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD. It is
// written here, and not by encoding/json, because it runs once for each token of each client.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(append(dst, s[done:i]...), `\ufffd`...)
		} else {
			dst = appendEscape(append(dst, s[done:i]...), c)
		}
		i++
		done = i
	}
	return append(append(dst, s[done:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// minLogprob stands for minus infinity, which JSON does not have. It is vLLM's number.
const minLogprob = -9999

func appendLogprob(dst []byte, p float32) []byte {
	if !(p >= minLogprob) { // not a number either
		p = minLogprob
	}
	return strconv.AppendFloat(dst, float64(p), 'g', -1, 32)
}

func appendInt[T int | int64](dst []byte, n T) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// usage counts tokens.
type usage struct{ prompt, completion, cached int }

func appendUsage(dst []byte, u usage) []byte {
	dst = appendInt(append(dst, `"usage":{"prompt_tokens":`...), u.prompt)
	dst = appendInt(append(dst, `,"completion_tokens":`...), u.completion)
	dst = appendInt(append(dst, `,"total_tokens":`...), u.prompt+u.completion)
	dst = appendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u.cached)
	return append(dst, '}', '}')
}
