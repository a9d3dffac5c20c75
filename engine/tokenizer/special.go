package tokenizer

// trie finds the longest of its strings.
type trie struct {
	nodes []trieNode
	first [256]int32 // after the first byte; 0: none
}

type trieNode struct {
	id   int32 // that ends here, or None
	next map[byte]int32
}

func (t *trie) add(text string, id int32) {
	if len(t.nodes) == 0 {
		t.nodes = append(t.nodes, trieNode{id: None}) // node 0: none
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

// find returns the first special token, the longest there; n is 0 without one.
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

// node stands for text[0].
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
