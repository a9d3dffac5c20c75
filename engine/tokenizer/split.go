package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// A splitter emits a text's words, in order and without loss.
type splitter func(text string, emit func(word string))

type preTokenizer struct {
	split        splitter
	ignoreMerges bool // whole tokens are not merged
	addBOS       bool // default of tokenizer.ggml.add_bos_token
	nfc          bool // as in this family's tokenizer.json
}

var (
	preGPT2    = preTokenizer{split: splitGPT2}
	preDigits  = preTokenizer{split: splitDigits}
	preLlama3  = preTokenizer{split: splitLlama3, ignoreMerges: true, addBOS: true}
	preTriples = preTokenizer{split: splitLlama3}
	preQwen2   = preTokenizer{split: splitQwen2}
	preQwenNFC = preTokenizer{split: splitQwen2, nfc: true}
	preQwen35  = preTokenizer{split: splitQwen35, nfc: true}
	preNeoX    = preTokenizer{split: splitGPT2, nfc: true}
	preCohere  = preTokenizer{split: splitDigits, nfc: true}
	preTekken  = preTokenizer{split: splitTekken, ignoreMerges: true, addBOS: true}
	preGPT4o   = preTokenizer{split: splitGPT4o}
	preDefault = preTokenizer{split: splitDefault}
	preGemma4  = preTokenizer{split: splitLines, addBOS: true}

	preDeepSeekLLM   = preTokenizer{split: splitDeepSeekLLM}
	preDeepSeekCoder = preTokenizer{split: splitDeepSeekCoder}
	preDeepSeek3     = preTokenizer{split: splitDeepSeek3}
	preFalcon        = preTokenizer{split: splitFalcon}
)

var preTokenizers = map[string]preTokenizer{
	"": preDefault, "default": preDefault,
	"gpt-2": preGPT2, "phi-2": preGPT2, "mpt": preNeoX, "olmo": preNeoX, "jais": preGPT2, "trillion": preGPT2,
	"exaone4": preGPT2, "granite-docling": preGPT2, "gigachat": preGPT2, "mellum": preGPT2, "a.x-4.0": preGPT2,
	"smollm": preDigits, "starcoder": preDigits, "refact": preDigits, "command-r": preCohere, "codeshell": preDigits,
	"exaone": preDigits, "minerva-7b": preDigits,
	"llama3": preLlama3, "llama-v3": preLlama3, "llama-bpe": preLlama3, "falcon3": preLlama3, "falcon-h1": preLlama3,
	"pixtral": preLlama3, "midm-2.0": preLlama3, "lfm2": preLlama3,
	"dbrx": preTriples, "smaug-bpe": preTriples, "glm4": preTriples, "chatglm-bpe": preTriples,
	"qwen2": preQwenNFC, "qwen35": preQwen35, "deepseek-r1-qwen": preQwen2, "kormo": preQwen2, "megrez": preQwen2, "stablelm2": preQwen2,
	"hunyuan": preQwen2, "grok-2": preQwen2,
	"deepseek-llm": preDeepSeekLLM, "deepseek-coder": preDeepSeekCoder, "deepseek-v3": preDeepSeek3, "hunyuan-dense": preDeepSeek3, "falcon": preFalcon,
	"tekken": preTekken, "gpt-4o": preGPT4o, "llama4": preGPT4o,
}

func findPreTokenizer(name string) (preTokenizer, error) {
	p, ok := preTokenizers[name]
	if ok {
		return p, nil
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(preTokenizers)), func(n string) bool { return n == "" })
	return p, fmt.Errorf("tokenizer: unknown pre-tokenizer tokenizer.ggml.pre = %q; supported are %s", name, strings.Join(names, ", "))
}

type class uint8

const (
	other class = iota
	letter
	number
	space
)

func classOf(r rune) class {
	if r < 0x80 {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
			return letter
		case r >= '0' && r <= '9':
			return number
		case r == ' ' || r >= '\t' && r <= '\r':
			return space
		}
		return other
	}
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsSpace(r):
		return space
	case unicode.IsNumber(r):
		return number
	}
	return other
}

func markedClassOf(r rune) class {
	if c := classOf(r); c != other || !unicode.IsMark(r) {
		return c
	}
	return letter
}

func run(s string, c class) int { return runOf(s, c, classOf) }

func runOf(s string, c class, of func(rune) class) int {
	i := 0
	for i < len(s) {
		r, n := decodeRune(s[i:])
		if of(r) != c {
			break
		}
		i += n
	}
	return i
}

// contraction returns the length of an English one: 's 't 're 've 'm 'll 'd.
func contraction(s string, anyCase bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(c byte) byte {
		if anyCase && c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	a := lower(s[1])
	if a == 's' || a == 't' || a == 'm' || a == 'd' {
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	if b := lower(s[2]); a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}

// spaces returns the length of \s+(?!\S)|\s+.
func spaces(s string) int {
	end, last := 0, 0
	for end < len(s) {
		r, n := decodeRune(s[end:])
		if classOf(r) != space {
			break
		}
		end, last = end+n, n
	}
	if end == len(s) || end == last {
		return end
	}
	return end - last
}

// wordGPT2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func wordGPT2(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	r, _ := decodeRune(s)
	start, c := 0, classOf(r)
	if r == ' ' && len(s) > 1 {
		r, _ = decodeRune(s[1:])
		start, c = 1, classOf(r)
	}
	if c == space {
		return spaces(s)
	}
	return start + run(s[start:], c)
}

// wordLlama3 is (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+, where of says what is of the class \p{L}
func wordLlama3(s string, digits int, of func(rune) class) int {
	// 1. contraction
	if n := contraction(s, true); n > 0 {
		return n
	}
	r, n := decodeRune(s)
	c := of(r)
	// 2. letters, after one character that is no letter, digit or line end
	if c == letter {
		return runOf(s, letter, of)
	}
	if c != number && r != '\r' && r != '\n' {
		if k := runOf(s[n:], letter, of); k > 0 {
			return n + k
		}
	}
	// 3. digits
	if c == number {
		return numbers(s, digits)
	}
	// 4. punctuation, after a space, before line ends
	start := 0
	if r == ' ' && len(s) > 1 {
		r, _ = decodeRune(s[1:])
		start, c = 1, of(r)
	}
	if c == other {
		end := start + runOf(s[start:], other, of)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// 5. white space up to its last line end, or other white space
	return lineSpaces(s)
}
