package inbound

import (
	"container/list"
	"context"
	"errors"
	"math/bits"
	"sync"
)

var (
	// ErrShare means that the client holds as much as one may.
	ErrShare = errors.New("this client holds as much memory as one client may")
	// ErrFull means that all memory is in use, and no larger account can give way.
	ErrFull = errors.New("all memory is in use")
	// ErrGaveWay means that the account was asked to give way.
	ErrGaveWay = errors.New("the memory was needed for others, who hold less")
)

// A Budget divides memory among clients, some of which may be hostile. A client never gets more than its share.
//
// If there is not enough, the largest open account of the client whose open accounts hold the most is told to give way, and
// [Account.Take] waits until that closes. Sizes count in powers of two. An account that would become larger is refused.
//
// All methods are safe for concurrent use; those of one account are called by one goroutine at a time.
type Budget struct {
	limit, share int64

	mu      sync.Mutex // guards the fields below, and the accounts and clients
	used    int64
	clients map[string]*client
	yields  ranks[client] // clients with open accounts, by the size of these
}

type client struct {
	name     string
	accounts int
	used     int64
	open     ranks[Account]
	opened   int
	openUsed int64 // the size of all in open
	place    place
}

// Account is the memory held by one request.
type Account struct {
	budget *Budget
	client *client
	held   int64
	yield  func()
	place  place

	gaveWay bool
	asked   chan struct{} // closed when it gives way; made when it waits in Take
	closed  chan struct{} // closed by Close; made when another account waits for that
}

// NewBudget returns a budget of limit bytes, of which one client may hold at most share.
func NewBudget(limit, share int64) *Budget {
	return &Budget{limit: limit, share: share, clients: make(map[string]*client)}
}

// Used returns the total held by all accounts.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Open returns an empty account. yield is called, at most once and in another goroutine, when the account must give way: the
// caller must then call [Account.Close] soon. It must neither block nor call the budget.
func (b *Budget) Open(name string, yield func()) *Account {
	a := &Account{budget: b, yield: yield}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[name]
	if c == nil {
		c = &client{name: name}
		b.clients[name] = c
	}
	c.accounts++
	a.client = c
	c.open.put(a, &a.place, 0)
	if c.opened++; c.opened == 1 {
		b.yields.put(c, &c.place, 0)
	}
	return a
}

// Take charges n more bytes. It blocks only while another account gives way. After an error the account's size is
// unchanged.
func (a *Account) Take(ctx context.Context, n int64) error {
	for {
		wait, err := a.budget.take(a, n)
		if err != nil || wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-a.asked:
			return ErrGaveWay
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Budget) take(a *Account, n int64) (wait <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var v *Account
	switch c := a.client; {
	case a.gaveWay:
		return nil, ErrGaveWay
	case c.used+n > b.share:
		if v = c.victim(a, n); v == nil {
			return nil, ErrShare
		}
	case b.used+n <= b.limit:
		b.charge(a, n)
		return nil, nil
	default:
		if v = b.victim(a, n); v == nil {
			return nil, ErrFull
		}
	}
	b.settle(v)
	v.gaveWay, v.closed = true, make(chan struct{})
	if v.asked != nil {
		close(v.asked)
	}
	if a.asked == nil {
		a.asked = make(chan struct{})
	}
	v.yield()
	return v.closed, nil
}

// victim returns the open account that gives way to a, which wants n more bytes; nil: none.
func (b *Budget) victim(a *Account, n int64) *Account {
	c := b.yields.top()
	switch {
	case c == nil || c != a.client && rank(c.openUsed) < rank(a.client.openUsed+n):
		return nil
	case c != a.client:
		return c.open.top()
	}
	return c.victim(a, n)
}

func (c *client) victim(a *Account, n int64) *Account {
	v := c.open.top()
	if v == nil || v == a || rank(v.held) < rank(a.held+n) {
		return nil
	}
	return v
}

func (b *Budget) charge(a *Account, n int64) {
	c := a.client
	b.used += n
	c.used += n
	a.held += n
	if a.place.at != nil {
		c.openUsed += n
		c.open.move(a, &a.place, a.held)
		b.yields.move(c, &c.place, c.openUsed)
	}
}

// Give returns n bytes.
func (a *Account) Give(n int64) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charge(a, -n)
}

// Settle keeps the account from giving way. It returns [ErrGaveWay] if it was asked to.
func (a *Account) Settle() error {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.gaveWay {
		return ErrGaveWay
	}
	b.settle(a)
	return nil
}

func (b *Budget) settle(a *Account) {
	if a.place.at == nil {
		return
	}
	c := a.client
	c.open.remove(&a.place)
	c.openUsed -= a.held
	if c.opened--; c.opened == 0 {
		b.yields.remove(&c.place)
	} else {
		b.yields.move(c, &c.place, c.openUsed)
	}
}

// Close returns all bytes of the account. It must be called once.
func (a *Account) Close() {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charge(a, -a.held)
	b.settle(a)
	c := a.client
	if c.accounts--; c.accounts == 0 {
		delete(b.clients, c.name)
	}
	if a.closed != nil {
		close(a.closed)
	}
}

// maxRank is the rank of sizes of a TiB or more.
const maxRank = 41

func rank(n int64) int { return min(bits.Len64(uint64(max(n, 0))), maxRank) }

// ranks holds items by the rank of their size, in order of arrival at that rank.
type ranks[T any] struct {
	lists [maxRank + 1]list.List
	most  int // all higher lists are empty
}

type place struct {
	rank int
	at   *list.Element // nil: in no list
}

func (r *ranks[T]) put(t *T, p *place, size int64) {
	p.rank = rank(size)
	p.at = r.lists[p.rank].PushBack(t)
	r.most = max(r.most, p.rank)
}

func (r *ranks[T]) remove(p *place) {
	r.lists[p.rank].Remove(p.at)
	p.at = nil
}

func (r *ranks[T]) move(t *T, p *place, size int64) {
	if rank(size) == p.rank {
		return
	}
	r.remove(p)
	r.put(t, p, size)
}

func (r *ranks[T]) top() *T {
	for r.most > 0 && r.lists[r.most].Len() == 0 {
		r.most--
	}
	if f := r.lists[r.most].Front(); f != nil {
		return f.Value.(*T)
	}
	return nil
}
