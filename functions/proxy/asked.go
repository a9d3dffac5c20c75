package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Prefixes is how a runtime separates the cached prompts of different clients.
type Prefixes int

const (
	// PrefixesAsTheyAre: the runtime can't, or all clients are to share.
	PrefixesAsTheyAre Prefixes = iota
	// PrefixesSalted: by vLLM's field cache_salt.
	PrefixesSalted
	// PrefixesForgotten: llama-server reuses nothing of a request whose field cache_prompt is false.
	PrefixesForgotten
)

// asked applies the client's identity to the body. It removes the priority unless the activator trusts the client, and adds the tenant
// to the salt of prompts. It refuses bodies that JSON parsers read differently: the router may have read another one.
func (x *exchange) asked(body *jsonfield.Object) error {
	watch := jsonfield.Watch{Names: jsonfield.Read}
	for name := range body.Fields { // the runtime refuses anything but an object
		if err := watch.See(name); err != nil {
			return api.BadRequest("", "%v", err)
		}
	}
	if watch.Saw("priority") && !x.cfg.Inside && x.r.Header[control.HeaderTrusted] == nil {
		body.Delete("priority")
	}
	x.salt(body)
	return nil
}

// salt separates the cached prompts of the request's tenant from those of others.
func (x *exchange) salt(body *jsonfield.Object) {
	tenant := x.r.Header.Get(control.HeaderTenant)
	if tenant == "" || !x.path.Prompts {
		return
	}
	switch x.cfg.Prefixes {
	case PrefixesSalted:
		own, found := body.Find("cache_salt")
		if !found || own[0] == '"' && len(own) != 2 { // else the runtime says what is wrong with it
			body.Set("cache_salt", saltOf(tenant, own))
		}
	case PrefixesForgotten:
		body.Set("cache_prompt", []byte("false"))
	}
}

// saltOf returns a JSON string as a salt that no other tenant's requests have, whatever salt a client adds.
func saltOf(tenant string, own []byte) []byte {
	sum := sha256.Sum256(append(append([]byte(tenant), 0), own...))
	return append(base64.RawURLEncoding.AppendEncode([]byte{'"'}, sum[:16]), '"')
}

// tellsState reports whether the runtime can continue a stream of another instance, and the request comes from the activator directly.
func (x *exchange) tellsState() bool {
	return (x.cfg.Tenants || x.cfg.States) && !x.cfg.Inside
}

// private removes the headers that the runtime must not see.
func (x *exchange) private(h http.Header) {
	for name := range h {
		switch {
		case (name == control.HeaderTenant || name == control.HeaderUsage) && x.cfg.Tenants:
		case name == control.HeaderState && x.tellsState():
		case control.Reserved(name), !x.cfg.Everything && control.Forwarded(name), !x.cfg.Credentials && control.Credential(name):
			delete(h, name)
		}
	}
}
