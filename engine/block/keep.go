package block

// Newest lists the free blocks with a name and their names, the one that was let go last first, at most n of them. Of
// one sequence the beginning comes before the end.
func (p *Pool) Newest(n int) (ids []int32, names []Hash) {
	end := int32(len(p.refs))
	for id := p.prev[end]; id != end && len(ids) < n; id = p.prev[id] {
		ids, names = append(ids, id), append(names, p.hash[id])
	}
	return ids, names
}

// Shed takes the names of all free blocks but the n that were let go last.
func (p *Pool) Shed(n int) {
	for p.idle > max(n, 0) {
		id := p.next[len(p.refs)]
		p.unlink(id)
		p.forget(id)
		p.plain = append(p.plain, id)
	}
}
