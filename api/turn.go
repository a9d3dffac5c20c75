package api

import "net/http"

// HeaderTurn carries the id of one request over one hop, made by who sends it (package localhttp). Its
// answer repeats it, by which that side knows that the answer is no other request's, and that the
// connection may carry a further one.
const HeaderTurn = "X-Rouse-Turn"

// InTurn has the answers of h repeat [HeaderTurn]: every server of ours that is reached over
// connections that carry more than one request does so. h never sees the header.
func InTurn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn := r.Header[HeaderTurn]; turn != nil {
			delete(r.Header, HeaderTurn)
			w.Header()[HeaderTurn] = turn
		}
		h.ServeHTTP(w, r)
	})
}
