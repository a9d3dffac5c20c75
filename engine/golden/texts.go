package main

import (
	"math/rand/v2"
	"strings"
)

// texts are strings that tokenizers often get wrong.
var texts = []string{
	"", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", " \n \n  ", "\t", "\t\t x", "a", " a", "a ", "a  ", "  a", "   a  b",
	"Hello, world!", "Hello  World\n", "hello\r\nworld\r\n\r\n!", "it's we're I'll I'd I'm they've can't 'tis", "IT'S WE'RE I'LL I'D I'M THEY'VE CAN'T",
	"'s't'x'", "x''s", "don’t", "'S 'T'Re'VE'lL", "a's b'd c'm d't e've f'll g're", "'", "' '", "'r", "'l'l'",
	"1", "12", "123", "1234", "12345", "1234567", " 1 22 333 4444", "3.14159", "1,000,000", "v1.2.3-rc4", "0x1F", "１２３４", "½¾²³", "Ⅷ Ⅸ", "٣٤٥", "1a2b3c", "a1 b22 c333",
	"!!!", " !!!", "!!! ", "...!?", "?!\n\n", "--\r\n x", "foo(bar[0]);", "a+b=c<d>e^f~g|h$i`j", "<|x|>", "http://x.y/z?q=1&r=2#s", "#include <stdio.h>\n\nint main() {\n    return 0;\n}\n",
	"def f(x):\n\treturn x  # ok\n", "    indented\n        more", "tab\tsep\tvalues", "trailing   \n   leading", "\u00a0nbsp\u00a0x", "\u3000全角\u3000", "a\u2028b\u2029c", "\u0085next",
	"世界", "你好，世界！", "こんにちは、世界", "カタカナ１２３", "안녕하세요 세계", "ไทยภาษา", "مرحبا بالعالم", "שלום", "Привет, мир!", "Ελληνικά", "हिन्दी में", "Tiếng Việt",
	"é è ê", "e\u0301 e\u0301e\u0301", "\u0301x", "a\u0300\u0301\u0302b", "ﬁ ﬂ ǅ ſ İ ı ª º", "naïve café", "straße", "ÅÄÖ åäö",
	"😀", "😀😀 😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽!", "a😀b", "€ £ ¥ ©", "∑∫√ ≤≥", "→ ← ↑", "“quoted” ‘text’ — dash … etc", "\u200b\u200d\ufeff", "\x00\x01\x7f", "\U0010ffff", "𝔘𝔫𝔦",
	"\xff", "a\xffb", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "ok\x80\x81ok", "\xc3(", // invalid UTF-8
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("ab", 60), strings.Repeat(" ", 33), strings.Repeat("\n", 9), strings.Repeat("世", 12), strings.Repeat("7", 20),
}

// casedTexts are for splitters that look at capitals.
var casedTexts = []string{
	"camelCase HTTPServer XMLHttpRequest iOS McDonald aB AbC ABc", "ÉTÉ Été éÉ aÉb ÉBé ABé éAB ßA Aß", "世A A世 a世B 世ab世AB", "ǅa aǅ ǅA",
	"It's CAN'T he'LLo we'Ve I'dX 'sX a'S1 é's É'RE", "path/to/file.txt //comment\n///\n", "a/b /c/ //\r\n/", "12/34/5678 0.5/x", ".Net -Abc \tAbc \nAbc  Abc",
	"e\u0301A A\u0301b \u0301B", "ªB Bª ʰX Xʰ", "X'", "'X' X''s", "АБв АбВ абВГ",
}

// specialTexts hold special tokens; they are encoded with and without parsing them.
var specialTexts = []string{
	"<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "<|im_start|><|im_end|>", "a<|im_end|>b", " <|im_end|> ", "<|im_end", "<<|im_end|>>",
	"<start_of_turn>user\n hi  there\n\n<end_of_turn>\n<start_of_turn>model\n", "<|user|>\n hi <|end|>\n<|assistant|>\n", "<|end|> \t\n x", "<s> x", "</s>  y\n",
	"<|endoftext|> z", "<tool>  t", "<bos>a\n\n\n\nb    c<eos>", "<|user|><|end|>",
	"<tool>x</tool>", "a <tool> b", "[INST] hi [/INST]", "<s>x</s>", "<unk>", "<|im_start|>system\n\n<tool><tool><|im_end|><|endoftext|>",
}

var alphabet = []string{
	"a", "b", "S", "T", "e", "r", "'", "'s", "'RE", "1", "2", "9", " ", " ", "  ", "\n", "\r\n", "\t", ".", "-", "$", "~", "`", "\"", "<", "^", "_",
	"é", "ß", "世", "の", "ア", "한", "ก", "ع", "Д", "ǅ", "ª", "ſ", "İ", "\u0301", "\u0940", "\u200d", "\ufe0f", "😀", "🏽", "½", "Ⅷ", "²", "٣", "　", "\u00a0", "\u0085", "’", "“", "—", "€", "©", "\u00ad", "\ue000",
}

// randomTexts returns strings of the alphabet, the same in each run.
func randomTexts(n int) []string {
	r := rand.New(rand.NewPCG(7, 11))
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for range 1 + r.IntN(24) {
			// Mostly ASCII, since the rules look at runs of white space, digits and letters.
			if r.IntN(3) > 0 {
				b.WriteString(alphabet[r.IntN(27)])
			} else {
				b.WriteString(alphabet[r.IntN(len(alphabet))])
			}
		}
		out[i] = b.String()
	}
	return out
}
