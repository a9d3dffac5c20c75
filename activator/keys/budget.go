package keys

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// Budget counts what an account has used in the present day and the present month, of UTC. It is counted for accounts with a limit of
// a day or a month only.
type Budget [2]Spent

// Spent is the use in a day (2006-01-02) or a month (2006-01).
type Spent struct {
	In                 string
	Tokens, GPUSeconds float64
}

var budgetNames = [...]string{time.DateOnly, "2006-01"}

// begin begins a new day or month if there is one.
func (b *Budget) begin(now time.Time) {
	for k, layout := range budgetNames {
		if in := now.UTC().Format(layout); b[k].In != in {
			b[k] = Spent{In: in}
		}
	}
}

// add counts more use; a correction of an estimate may be negative.
func (b *Budget) add(tokens, gpuSeconds float64) {
	b.begin(time.Now())
	for k := range b {
		b[k].Tokens = max(0, b[k].Tokens+tokens)
		b[k].GPUSeconds += gpuSeconds
	}
}

// short returns an error for the limit in r that is used up; nil: none is.
func (b *Budget) short(name string, r apikey.Rights, now time.Time) *api.Error {
	b.begin(now)
	year, month, day := now.UTC().Date()
	next := [...]time.Time{time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC), time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)}
	for k, limits := range r.Budgets() {
		for n, used := range [...]float64{b[k].Tokens, b[k].GPUSeconds} {
			if limit := limits[n]; limit > 0 && used >= float64(limit) {
				return api.Errorf(http.StatusTooManyRequests, api.CodeRateLimit, "the key %s has used its %d %s of this %s: the next one begins at %s",
					name, limit, [...]string{"tokens", "GPU-seconds"}[n], [...]string{"day", "month"}[k], next[k].Format(time.RFC3339)).WithRetryAfter(next[k].Sub(now))
			}
		}
	}
	return nil
}

// budgeted reports whether the account has a limit of a day or a month. The caller holds mu.
func (a *Account) budgeted() bool { return a.rights.Budgets() != [2][2]int64{} }

// Spend counts GPU-seconds that the account's requests have used.
func (a *Account) Spend(gpuSeconds float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.budgeted() {
		a.use(control.Use{GPUSeconds: gpuSeconds}, true)
	}
}

// Budgets returns what accounts with limits of a day or a month have used, by [Account.ID].
func (s *Store) Budgets() map[string]Budget {
	all := map[string]Budget{}
	s.each(func(a *Account) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.budget != (Budget{}) {
			all[a.id] = a.budget
		}
	})
	return all
}

// Restore sets what accounts have used. Call it before the first [Store.Load].
func (s *Store) Restore(budgets map[string]Budget) { s.budgets = budgets }
