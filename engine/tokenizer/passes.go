package tokenizer

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// A pass returns the length of a match at the beginning of s, or 0. Each pass cuts the words of the one before at its
// matches, and keeps what is between. A look-ahead ends at the word's end.
type pass func(s string) int

// The expressions are from the models' tokenizer.json; llama.cpp has them too (src/llama-vocab.cpp).
func inPasses(passes ...pass) splitter {
	return before(func(text string, emit func(string)) { emit(text) }, passes...)
}

func before(last splitter, passes ...pass) splitter {
	if len(passes) == 0 {
		return last
	}
	rest := before(last, passes[1:]...)
	return func(text string, emit func(string)) {
		from := 0
		for at := 0; at < len(text); {
			n := passes[0](text[at:])
			if n == 0 {
				_, n = decodeRune(text[at:])
				at += n
				continue
			}
			if at > from {
				rest(text[from:at], emit)
			}
			rest(text[at:at+n], emit)
			at += n
			from = at
		}
		if from < len(text) {
			rest(text[from:], emit)
		}
	}
}

var (
	splitGPT2   = inPasses(wordGPT2)
	splitDigits = inPasses(upTo(1), wordGPT2) // \p{N}, GPT-2's
	splitLlama3 = inPasses(func(s string) int { return wordLlama3(s, 3, classOf) })
	splitQwen2  = inPasses(func(s string) int { return wordLlama3(s, 1, classOf) })
	splitQwen35 = inPasses(func(s string) int { return wordLlama3(s, 1, markedClassOf) }) // [\p{L}\p{M}] for \p{L}, but for the one in front
	splitTekken = inPasses(func(s string) int { return wordCased(s, 1, false) })
	splitGPT4o  = inPasses(func(s string) int { return wordCased(s, 3, true) })
	// splitLines: [^\n]+|[\n]+
	splitLines = inPasses(while(func(r rune) bool { return r == '\n' }))
	// splitDefault is for files without a named pre-tokenizer: [\p{P}$+<=>^~|]+, GPT-2's, \p{N}+, [0-9][0-9][0-9]
	splitDefault = inPasses(punctuation("$+<=>^~|"), wordGPT2, upTo(math.MaxInt), triple)
	// splitDeepSeek3: \p{N}{1,3}, [一-龥぀-ゟ゠-ヿ]+ and wordDeepSeek3
	splitDeepSeek3 = inPasses(
		upTo(3),
		while(func(r rune) bool { return r >= '一' && r <= '龥' || r >= 0x3040 && r <= 0x30ff }),
		wordDeepSeek3,
	)
	// splitDeepSeekLLM: [\r\n], \s?[cased]+, \s?[!-/:-~！-／：-～‘-‟　-。]+, \s+$, [一-龥ࠀ-一가-퟿]+, \p{N}+
	splitDeepSeekLLM = before(
		trailingSpaces(inPasses(while(cjk), upTo(math.MaxInt))),
		lineEnd, spaced(within(cased)), spaced(within(tableOf("!-/:-~！-／：-～‘-‟\u3000-。"))),
	)
	// splitDeepSeekCoder: [\r\n], \s?\p{L}+, \s?\p{P}+, [一-龥ࠀ-一가-퟿]+, \p{N}
	splitDeepSeekCoder = inPasses(lineEnd, spaced(unicode.IsLetter), spaced(unicode.IsPunct), while(cjk), upTo(1))
	// splitFalcon: [\p{P}$+<=>^~|`]+, GPT-2's, [0-9][0-9][0-9]
	splitFalcon = inPasses(punctuation("$+<=>^~|`"), wordGPT2, triple)
)

// upTo matches \p{N}{1,n}.
func upTo(n int) pass { return func(s string) int { return numbers(s, n) } }

func punctuation(others string) pass {
	return while(func(r rune) bool { return unicode.IsPunct(r) || strings.ContainsRune(others, r) })
}

// triple matches [0-9][0-9][0-9].
func triple(s string) int {
	for i := range 3 {
		if i >= len(s) || s[i] < '0' || s[i] > '9' {
			return 0
		}
	}
	return 3
}

func while(is func(rune) bool) pass {
	return func(s string) int {
		for i, r := range s {
			if !is(r) {
				return i
			}
		}
		return len(s)
	}
}

// spaced matches \s? and a run of is.
func spaced(is func(rune) bool) pass {
	run := while(is)
	return func(s string) int {
		if r, n := decodeRune(s); classOf(r) == space {
			if k := run(s[n:]); k > 0 {
				return n + k
			}
		}
		return run(s)
	}
}

func within(table *unicode.RangeTable) func(rune) bool {
	return func(r rune) bool { return unicode.Is(table, r) }
}

// lineEnd matches [\r\n].
func lineEnd(s string) int {
	if s[0] == '\r' || s[0] == '\n' {
		return 1
	}
	return 0
}

// trailingSpaces cuts at \s+$.
func trailingSpaces(rest splitter) splitter {
	return func(text string, emit func(string)) {
		n := len(strings.TrimRightFunc(text, func(r rune) bool { return classOf(r) == space }))
		for _, part := range []string{text[:n], text[n:]} {
			if part != "" {
				rest(part, emit)
			}
		}
	}
}

// cjk matches [一-龥ࠀ-一가-퟿].
func cjk(r rune) bool {
	return r >= 0x0800 && r <= '龥' || r >= '가' && r <= 0xd7ff
}

var (
	letters = while(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) })
	marks   = while(func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) })
)

// wordDeepSeek3 is [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func wordDeepSeek3(s string) int {
	r, n := decodeRune(s)
	// 1. ASCII punctuation and ASCII letters
	if r < 0x80 && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
		if k := asciiLetters(s[n:]); k > 0 {
			return n + k
		}
	}
	// 2. letters and marks, after one character that is no letter, punctuation, symbol or line end
	if r != '\r' && r != '\n' && !unicode.IsLetter(r) && !unicode.IsPunct(r) && !unicode.IsSymbol(r) {
		if k := letters(s[n:]); k > 0 {
			return n + k
		}
	}
	if k := letters(s); k > 0 {
		return k
	}
	// 3. punctuation and symbols, after a space, before line ends
	start := 0
	if r == ' ' {
		start = 1
	}
	if k := marks(s[start:]); k > 0 {
		end := start + k
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// 4. white space up to its last line end, or other white space
	return lineSpaces(s)
}

func asciiLetters(s string) int {
	for i := range len(s) {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return i
		}
	}
	return len(s)
}

func tableOf(class string) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	runes := []rune(class)
	for i := 0; i < len(runes); i++ {
		from, to := runes[i], runes[i]
		if i+2 < len(runes) && runes[i+1] == '-' {
			to = runes[i+2]
			i += 2
		}
		if to <= 0xffff {
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(from), Hi: uint16(to), Stride: 1})
		} else {
			t.R32 = append(t.R32, unicode.Range32{Lo: uint32(from), Hi: uint32(to), Stride: 1})
		}
	}
	slices.SortFunc(t.R16, func(a, b unicode.Range16) int { return cmp.Compare(a.Lo, b.Lo) }) // for unicode.Is
	slices.SortFunc(t.R32, func(a, b unicode.Range32) int { return cmp.Compare(a.Lo, b.Lo) })
	return t
}

// cased are the letters with case in DeepSeek's first models.
var cased = tableOf("" +
	"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ" +
	"Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-" +
	"Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
