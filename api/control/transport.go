package control

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// dialTime bounds the making of a connection to the control plane.
const dialTime = time.Second

// NewTransport makes a transport for calls to the control plane, which keeps up to idle
// connections. Behind one address there may be another leader in the next moment, and a
// dead one answers nothing: a connection is made within a second, name and all, or not at all.
func NewTransport(idle int) *http.Transport {
	t := api.NewTransport(idle)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		return dial(ctx, network, address)
	}
	return t
}
