package proxy

import (
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// moves tells the gate whether the request can continue at another instance from now on: as a stream with a known state, or from its
// start while nothing of an answer was sent.
func (x *exchange) moves(is bool) {
	if gate := x.Proxy.moves; gate != nil && x.movable != is {
		x.movable = is
		gate.Movable(is)
	}
}

// giving reports whether the runtime ended the request so that it continues elsewhere.
func (x *exchange) giving() bool { return x.movable && x.Proxy.moves.Moving() }

// giveWay refuses the request, for a retry elsewhere, if the runtime ended it for that and nothing of an answer was sent. It reports
// whether it did.
func (x *exchange) giveWay() bool {
	if !x.giving() {
		return false
	}
	x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeMoved, "the instance gives way: the request goes on elsewhere"))
	return true
}
