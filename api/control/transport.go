package control

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// NewTransport returns a transport for calls to the control plane that keeps up to idle connections. An address may
// move to another leader at any moment, and a dead one answers nothing: name resolution and dialing together take at
// most a second.
func NewTransport(idle int) *http.Transport {
	t := api.NewTransport(idle)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return dial(ctx, network, address)
	}
	return t
}
