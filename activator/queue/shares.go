package queue

import "time"

// While requests wait, the running ones are looked at each shareEvery:
//
//  1. A request whose client leaves written data unread for unreadFor ends.
const (
	shareEvery = 250 * time.Millisecond
	unreadFor  = 5 * time.Second
)

// watchShares begins to look at the running requests: one waits. The caller holds mu.
func (f *Function) watchShares() {
	if !f.watched {
		f.watched = true
		f.watch.Reset(shareEvery)
	}
}

// checkShares runs on the timer.
func (f *Function) checkShares() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watched = false; f.queue.Len() == 0 {
		return
	}
	f.watchShares()
	for w := range f.wants {
		if w.slot != nil && w.EndUnread != nil {
			w.EndUnread(unreadFor)
		}
	}
}
