package wake

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Permission is what an activator may do to one instance: the pure rules of grants
// and revocations, whatever order they come in. The zero value permits nothing.
type Permission struct {
	// Grant is the standing grant; zero: none.
	Grant api.Grant
	// Revoked is the highest epoch that was taken back: no grant with it or a lower one is accepted.
	Revoked uint64
}

// Accept takes in a grant. false: it is out of date, and nothing changes. A grant with
// a lifetime is valid for that long from now on, whatever its sender's clock says.
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

// Revoke takes back every grant up to an epoch.
func (p Permission) Revoke(epoch uint64) Permission {
	p.Revoked = max(p.Revoked, epoch)
	if p.Grant.Epoch <= epoch {
		p.Grant = api.Grant{}
	}
	return p
}
