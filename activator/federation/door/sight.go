package door

import (
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
)

// Sees implements [activator.Sight].
func (f *Front) Sees(name api.FunctionName) func(client string, i api.InstanceID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.find(name)
	if fn == nil || len(fn.regions()) == 0 && !f.byTenant() {
		return nil
	}
	far, regions, near := map[api.InstanceID]Declaration{}, fn.regions(), fn.near != nil
	for agent, o := range fn.offers {
		far[instance(agent, fn.name)] = o.session.declared
	}
	return func(client string, i api.InstanceID) bool {
		d, is := far[i]
		return is && bars(d, regions, peer.Tenant(client)) == "" || !is && near
	}
}

// Bars implements [activator.Sight]. A cluster that has just gone may return.
func (f *Front) Bars(name api.FunctionName, client string) *api.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.find(name)
	if fn == nil || fn.near != nil {
		return nil
	}
	if fn.away != nil {
		return fn.away
	}
	tenant, now := peer.Tenant(client), time.Now()
	var why []string
	for _, agent := range sorted(f.sessions) {
		s := f.sessions[agent]
		if !s.declared.allows(fn.name) || fn.offers[agent] == nil && (fn.placed == nil || fn.unfit(s, now) != "") {
			continue
		}
		reason := bars(s.declared, fn.regions(), tenant)
		if reason == "" {
			return nil
		}
		why = append(why, s.hello.Cluster+": "+reason)
	}
	if len(why) == 0 || !f.mayCome(fn, tenant, now).IsZero() {
		return nil
	}
	return api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "no cluster for %s may see these requests: %s", fn.name, strings.Join(why, "; "))
}
