package block

// Newest returns at most n free named blocks, the last freed first. Within a sequence the beginning comes first.
func (p *Pool) Newest(n int) (ids []int32, names []Hash) {
	end := int32(len(p.refs))
	for id := p.prev[end]; id != end && len(ids) < n; id = p.prev[id] {
		ids, names = append(ids, id), append(names, p.hash[id])
	}
	return ids, names
}

// Shed removes the names of all free blocks but the n last freed.
func (p *Pool) Shed(n int) {
	for p.idle > max(n, 0) {
		id := p.next[len(p.refs)]
		p.unlink(id)
		p.forget(id)
		p.plain = append(p.plain, id)
	}
}
