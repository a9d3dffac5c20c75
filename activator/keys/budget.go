package keys

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

var budgetNames = [...]string{time.DateOnly, "2006-01"}

// begin begins a new day or month with pending: estimates of running requests. A clock set back changes nothing.
func begin(b *control.Budget, now time.Time, pending float64) {
	for k, layout := range budgetNames {
		switch in := now.UTC().Format(layout); {
		case b[k].In < in:
			b[k] = control.Spent{In: in, Tokens: pending}
		case b[k].In > now.UTC().AddDate(0, 0, 1).Format(layout): // long ago
			b[k].In = in
		}
	}
}

// A correction may be negative. The caller holds mu.
func (a *Account) spend(u control.Use) {
	if a.budgeted() {
		begin(&a.budget, time.Now(), a.pending)
		for k := range a.budget {
			b := &a.budget[k]
			b.Tokens = max(0, b.Tokens+u.Spent)
			b.GPUSeconds += u.GPUSeconds
		}
	}
}

// The caller holds mu.
func (a *Account) overBudget(now time.Time) *api.Error {
	b := &a.budget
	for k, limits := range a.rights.Budgets() {
		begun, _ := time.Parse(budgetNames[k], b[k].In)
		next := begun.AddDate(0, k, 1-k)
		for n, used := range [...]float64{b[k].Tokens, b[k].GPUSeconds} {
			if limit := limits[n]; limit > 0 && used >= float64(limit) {
				return api.Errorf(http.StatusTooManyRequests, CodeRateLimit, "the key %s has used its %d %s of this %s: the next one begins at %s",
					a.Name, limit, [...]string{"tokens", "GPU-seconds"}[n], [...]string{"day", "month"}[k], next.Format(time.RFC3339)).WithRetryAfter(next.Sub(now))
			}
		}
	}
	return nil
}

// The caller holds mu.
func (a *Account) budgeted() bool { return a.rights.Budgets() != [2][2]int64{} }

// Spend counts GPU-seconds.
func (a *Account) Spend(gpuSeconds float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.budgeted() {
		a.use(control.Use{GPUSeconds: gpuSeconds}, true)
	}
}

// Budgets returns what accounts, also removed ones, have used in the present month, by [Account.ID]. A nil Store
// has none.
func (s *Store) Budgets() map[string]control.Budget {
	if s == nil {
		return nil
	}
	s.each(func(a *Account) {
		a.mu.Lock()
		s.budgets.Store(a.id, a.budget)
		a.mu.Unlock()
	})
	all := map[string]control.Budget{}
	s.budgets.Range(func(id, of any) bool {
		b := of.(control.Budget)
		if begin(&b, time.Now(), 0); b[1].Tokens+b[1].GPUSeconds == 0 {
			s.budgets.Delete(id)
		} else {
			all[id.(string)] = b
		}
		return true
	})
	return all
}

// Restore sets what accounts have used. Call it before the first [Store.Load].
func (s *Store) Restore(budgets map[string]control.Budget) {
	for id, b := range budgets {
		s.budgets.Store(id, b)
	}
}

// LearnBudget raises an account's use to another activator's.
func (s *Store) LearnBudget(account string, known control.Budget) {
	if s == nil {
		return
	}
	a, _ := s.named(account)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	begin(&a.budget, time.Now(), a.pending)
	for k, told := range known {
		if b := &a.budget[k]; b.In == told.In {
			b.Tokens = max(b.Tokens, min(told.Tokens, 1<<50))
			b.GPUSeconds = max(b.GPUSeconds, min(told.GPUSeconds, 1<<50))
		}
	}
}
