package api

import "net/http"

// HeaderTurn carries the ID of one request over one hop; the sender makes it (package localhttp). The answer repeats
// it. So the sender knows that the answer belongs to this request, and that the connection may be reused.
const HeaderTurn = "X-Rouse-Turn"

// InTurn wraps h so that its answers repeat [HeaderTurn]. Every server of ours that is reached over reused
// connections needs it. h never sees the header.
func InTurn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn := r.Header[HeaderTurn]; turn != nil {
			delete(r.Header, HeaderTurn)
			w.Header()[HeaderTurn] = turn
		}
		h.ServeHTTP(w, r)
	})
}
