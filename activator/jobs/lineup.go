package jobs

import (
	"slices"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// lineup holds waiting ids by owner. The zero value is empty. The owner of the lineup guards it.
type lineup struct{ of map[string][]string }

// add appends ids to their owner's.
func (l *lineup) add(owner string, ids ...string) {
	if l.of == nil {
		l.of = map[string][]string{}
	}
	l.of[owner] = append(l.of[owner], ids...)
}

func (l *lineup) has(r store.Ref) bool { return slices.Contains(l.of[r.Owner], r.ID) }

// remove removes an id, and reports whether it was there.
func (l *lineup) remove(owner, id string) bool {
	k := slices.Index(l.of[owner], id)
	if k < 0 {
		return false
	}
	if l.of[owner] = slices.Delete(l.of[owner], k, k+1); len(l.of[owner]) == 0 {
		delete(l.of, owner)
	}
	return true
}

// next removes and returns the first id of the owner with the fewest running, if fewer than most. Among such owners
// the oldest id wins: ids grow with time. False: none.
func (l *lineup) next(running map[string]*running, most int) (owner, id string, ok bool) {
	busy := map[string]int{}
	for _, r := range running {
		busy[r.owner]++
	}
	for o, ids := range l.of {
		n := busy[o]
		if n < most && (!ok || n < busy[owner] || n == busy[owner] && ids[0] < id) {
			owner, id, ok = o, ids[0], true
		}
	}
	if ok {
		l.remove(owner, id)
	}
	return owner, id, ok
}
