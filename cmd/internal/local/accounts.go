package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/disk"
)

const (
	accountsVersion = 1
	accountsEvery   = time.Second
)

// accounts are usage and keys' budgets, in a file of the port that outlives the server. Without a valid one, counting begins again.
type accounts struct {
	path    string // empty: nothing is kept
	Usage   *usage.Saved
	Budgets map[string]control.Budget
	failed  bool // the last write
}

// read keeps nothing if dir is empty.
func (a *accounts) read(dir string, port int, log *slog.Logger) {
	if dir == "" {
		return
	}
	a.path = filepath.Join(dir, fmt.Sprintf("accounts-%d.json", port))
	raw, err := os.ReadFile(a.path)
	if err == nil {
		err = disk.Decode(raw, accountsVersion, a)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what was used can't be read, and is counted from now on", "file", a.path, "error", err)
		a.Usage, a.Budgets = nil, nil
	}
}

// writeAccounts also writes budgets between the activator's reports. It is not safe for concurrent use.
func (s *server) writeAccounts() {
	s.activator.TellUse(time.Now())
	budgets := func() map[string]control.Budget { return s.accounts.Budgets }
	if s.keys != nil {
		budgets = s.keys.Budgets
	}
	again := s.accounts.failed
	if err := s.accounts.write(s.autoscaler.SaveUsage(), budgets); err != nil && !again {
		s.cfg.Logger.Error("what was used is not kept", "error", err)
	}
}

// write does nothing unless accounts have changed, or the last write failed; a nil u has not changed.
func (a *accounts) write(u *usage.Saved, budgets func() map[string]control.Budget) error {
	if a.path == "" {
		return nil
	}
	now := budgets()
	if u == nil && !a.failed && maps.Equal(now, a.Budgets) {
		return nil
	}
	a.Usage, a.Budgets = cmp.Or(u, a.Usage), now
	raw, err := disk.Encode(accountsVersion, a)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(a.path), 0o700), disk.WriteFile(a.path, raw, 0o600))
	}
	a.failed = err != nil
	return err
}
