package tokenizer

// trie finds the longest of a set of strings at a position in a text. It is immutable once built.
type trie struct {
	nodes []trieNode
	first [256]int32 // node after the first byte, 0 for none
}

type trieNode struct {
	id   int32 // token that ends here, None for none
	next map[byte]int32
}

// add adds text to the set. Of two tokens with the same text the first is kept.
func (t *trie) add(text string, id int32) {
	if len(t.nodes) == 0 {
		t.nodes = append(t.nodes, trieNode{id: None}) // node 0 stands for "none"
	}
	at := t.first[text[0]]
	if at == 0 {
		at = t.grow()
		t.first[text[0]] = at
	}
	for i := 1; i < len(text); i++ {
		next, ok := t.nodes[at].next[text[i]]
		if !ok {
			next = t.grow()
			if t.nodes[at].next == nil {
				t.nodes[at].next = map[byte]int32{}
			}
			t.nodes[at].next[text[i]] = next
		}
		at = next
	}
	if t.nodes[at].id == None {
		t.nodes[at].id = id
	}
}

func (t *trie) grow() int32 {
	t.nodes = append(t.nodes, trieNode{id: None})
	return int32(len(t.nodes) - 1)
}

// find returns the position, length and id of the first special token in text, the longest one at that position. The
// length is 0 if there is none.
func (t *trie) find(text string) (at, n int, id int32) {
	if len(t.nodes) == 0 {
		return 0, 0, None
	}
	for at = 0; at < len(text); at++ {
		node := t.first[text[at]]
		if node == 0 {
			continue
		}
		if n, id = t.longest(node, text[at:]); n > 0 {
			return at, n, id
		}
	}
	return 0, 0, None
}

// longest matches text from node, which stands for text[0].
func (t *trie) longest(node int32, text string) (n int, id int32) {
	id = None
	for i := 1; ; i++ {
		if t.nodes[node].id != None {
			n, id = i, t.nodes[node].id
		}
		if i == len(text) {
			return n, id
		}
		next, ok := t.nodes[node].next[text[i]]
		if !ok {
			return n, id
		}
		node = next
	}
}
