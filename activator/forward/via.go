package forward

import (
	"context"
	"net/http"
)

// Via means that a gateway, not this process, sends the request to instances, as with an endpoint picker. We tell the
// gateway where to send it, and the gateway reports the answer. The client reads nothing before an instance answers.
type Via struct {
	// Transport takes a request to the chosen instance, at most once.
	Transport http.RoundTripper
	// Model is the requested model, overriding the body; empty: the body's.
	Model string
	// Allows reports whether an instance may be chosen, by its host and port; nil: all may. It must not block.
	Allows func(host string) bool
	// Next holds the hosts and ports of alternative instances, the best first; it is set before the request goes to
	// Transport. Transport sets Served to the host and port of the instance that answered; empty: unknown.
	Next   []string
	Served string
}

type viaKey struct{}

// WithVia adds v to ctx.
func WithVia(ctx context.Context, v *Via) context.Context { return context.WithValue(ctx, viaKey{}, v) }

// ViaOf returns the request's Via, or nil if this process sends the request itself.
func ViaOf(ctx context.Context) *Via {
	v, _ := ctx.Value(viaKey{}).(*Via)
	return v
}
