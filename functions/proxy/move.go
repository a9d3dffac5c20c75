package proxy

import (
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// moves tells the gate whether the request can go on elsewhere from now on: as a stream whose state is told, or whole, as long as
// nothing of an answer was sent.
func (x *exchange) moves(is bool) {
	if gate := x.proxy.moves; gate != nil && x.movable != is {
		x.movable = is
		gate.Movable(is)
	}
}

// giving says whether the runtime has ended the request because it gives way.
func (x *exchange) giving() bool { return x.movable && x.proxy.moves.Moving() }

// giveWay gives a request back of whose answer nothing was sent, where the runtime has ended it because it gives way.
func (x *exchange) giveWay() bool {
	if !x.giving() {
		return false
	}
	x.refuse(api.Errorf(http.StatusServiceUnavailable, api.CodeMoved, "the instance gives way: the request goes on elsewhere"))
	return true
}
