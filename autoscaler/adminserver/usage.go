package adminserver

import (
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// usage answers with the usage by client.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	q, err := admin.UsageQueryOf(r.URL.Query())
	if err != nil {
		api.WriteError(w, api.AsError(err))
		return
	}
	api.WriteJSON(w, http.StatusOK, s.cfg.Decider.Usage(q))
}
