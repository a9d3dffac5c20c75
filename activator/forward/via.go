package forward

import (
	"context"
	"net/http"
)

// Via says that a request does not go to instances by this process: who passes it on is told where it goes, and tells what
// comes back, as an endpoint picker and its gateway do. Its client reads nothing before an instance answers.
type Via struct {
	// Transport takes a request to the instance that was chosen, at most once.
	Transport http.RoundTripper
	// Model is what the request asks for, whatever its body says; empty: what its body says.
	Model string
	// Allows says whether an instance may be chosen, by the host and port of its address; nil: each may. It must not block.
	Allows func(host string) bool
	// Next are the hosts and ports of instances that may answer where the one that was chosen does not, the best first. They are set before the request
	// goes to Transport, which sets Served to the host and port of the one that has answered; empty: nobody has said.
	Next   []string
	Served string
}

type viaKey struct{}

// WithVia says that the request of ctx goes that way.
func WithVia(ctx context.Context, v *Via) context.Context { return context.WithValue(ctx, viaKey{}, v) }

// ViaOf is the way of the request of ctx; nil: this process sends it itself.
func ViaOf(ctx context.Context) *Via {
	v, _ := ctx.Value(viaKey{}).(*Via)
	return v
}
