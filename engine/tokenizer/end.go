package tokenizer

import "strings"

// endNames end a turn or a text in any file: llama.cpp's list (llama-vocab.cpp, "end of generation").
var endNames = strings.Fields(`
	<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <end_of_turn> <turn|> <|tool_response> <|endoftext|> <|eom_id|>
	<EOT> _<EOT> <|end_of_text|> <end_of_utterance>` +
	// fill-in-the-middle padding and file marks, or code models continue into the next file
	` <|fim_pad|> <fim-pad> <fim_pad> <PAD> <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>`)

// turnEndNames count only if the file has no end-of-turn id.
var turnEndNames = []string{"<｜end▁of▁sentence｜>"}

// endTokens returns the ids that end a generation, and makes them control tokens, which some converters forget.
//
//  1. The ids that the file names.
//  2. Tokens with one of the names above.
//  3. In a vocabulary with <|return|> and <|call|>, <|end|> is no end.
func endTokens(v *Vocab, types []Type) map[int32]bool {
	ends := map[int32]bool{}
	byName := make(map[string]int32, len(endNames)+len(turnEndNames))
	for _, n := range endNames {
		byName[n] = None
	}
	for _, n := range turnEndNames {
		byName[n] = None
	}
	for i, text := range v.Tokens {
		if id, ok := byName[text]; ok && id == None {
			byName[text] = int32(i)
		}
	}
	// 1.
	for _, id := range []int32{v.EOS, v.EOT, v.EOM} {
		if id != None {
			ends[id] = true
		}
	}
	// 2.
	names := endNames
	if v.EOT == None {
		names = append(names[:len(names):len(names)], turnEndNames...)
	}
	for _, n := range names {
		if id := byName[n]; id != None {
			ends[id] = true
			types[id] = Control
		}
	}
	// 3.
	if byName["<|return|>"] != None && byName["<|call|>"] != None && byName["<|end|>"] != None {
		delete(ends, byName["<|end|>"])
	}
	return ends
}
