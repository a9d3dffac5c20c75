package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Prefixes is how a runtime keeps apart what it has computed for different clients.
type Prefixes int

// How a runtime does it.
const (
	// PrefixesAsTheyAre: it can't, or all clients are to share.
	PrefixesAsTheyAre Prefixes = iota
	// PrefixesSalted: by the field cache_salt, as vLLM has it.
	PrefixesSalted
	// PrefixesForgotten: only by using nothing again, where the field cache_prompt is false, as llama-server has it.
	PrefixesForgotten
)

// asked puts into the body what counts of who asks. What a client may not say is taken out:
// its priority, unless the activator trusts it. Who asks goes into the salt of prompts.
// A body that servers read differently is refused: who routed it may have read another.
func (x *exchange) asked(body *jsonfield.Object) error {
	watch := jsonfield.Watch{Names: jsonfield.Read}
	for name := range body.Fields { // what is no object is the runtime's to refuse
		if err := watch.See(name); err != nil {
			return api.BadRequest("", "%v", err)
		}
	}
	if watch.Saw("priority") && !x.proxy.cfg.Inside && x.r.Header[control.HeaderTrusted] == nil {
		body.Delete("priority")
	}
	x.salt(body)
	return nil
}

// salt keeps what is computed for the request's client apart from what others get.
func (x *exchange) salt(body *jsonfield.Object) {
	tenant := x.r.Header.Get(control.HeaderTenant)
	if tenant == "" || !x.path.Prompts {
		return
	}
	switch x.proxy.cfg.Prefixes {
	case PrefixesSalted:
		own, found := body.Find("cache_salt")
		if !found || own[0] == '"' && len(own) != 2 { // else the runtime says what is wrong with it
			body.Set("cache_salt", saltOf(tenant, own))
		}
	case PrefixesForgotten:
		body.Set("cache_prompt", []byte("false"))
	}
}

// saltOf returns a salt that no other tenant's requests have, whatever salt of its own each adds: a string of JSON.
func saltOf(tenant string, own []byte) []byte {
	sum := sha256.Sum256(append(append([]byte(tenant), 0), own...))
	return append(base64.RawURLEncoding.AppendEncode([]byte{'"'}, sum[:16]), '"')
}

// tellsState says whether the runtime can go on with a stream of another instance, and nobody is between it and the activator.
func (x *exchange) tellsState() bool {
	return (x.proxy.cfg.Tenants || x.proxy.cfg.States) && !x.proxy.cfg.Inside
}

// private takes out of a request's header what the runtime is not to know.
func (x *exchange) private(h http.Header) {
	for name := range h {
		switch {
		case name == control.HeaderTenant && x.proxy.cfg.Tenants:
		case name == control.HeaderState && x.tellsState():
		case control.Reserved(name), !x.proxy.cfg.Everything && control.Forwarded(name), !x.proxy.cfg.Credentials && control.Credential(name):
			delete(h, name)
		}
	}
}
