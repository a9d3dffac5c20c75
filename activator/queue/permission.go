package queue

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Permission is the right to wake one instance: the pure rules of grants and revocations, in whatever order they
// arrive. The zero value permits nothing.
type Permission struct {
	// Grant is the standing grant; zero: none.
	Grant api.Grant
	// Revoked is the highest revoked epoch: no grant with it or a lower one is accepted.
	Revoked uint64
}

// Accept applies a grant. It returns false if the grant is outdated, and changes nothing. A grant with a lifetime is
// valid for that long from now, whatever its sender's clock.
func (p Permission) Accept(g api.Grant, now time.Time) (Permission, bool) {
	if g.Instance == "" || g.Epoch <= p.Revoked || api.StaleEpoch(g.Epoch, p.Grant.Epoch) {
		return p, false
	}
	if g.Life > 0 {
		g.Expires = now.Add(g.Life)
	}
	p.Grant = g
	return p, true
}

// Revoke revokes every grant up to an epoch.
func (p Permission) Revoke(epoch uint64) Permission {
	p.Revoked = max(p.Revoked, epoch)
	if p.Grant.Epoch <= epoch {
		p.Grant = api.Grant{}
	}
	return p
}
