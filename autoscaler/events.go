package autoscaler

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// EventsHandler serves POST [control.PathEvents]: one CloudEvent, in either content mode. It answers 202 as soon as the
// event is queued, and 400 with the reason if the event is invalid.
func (a *Autoscaler) EventsHandler() http.Handler {
	r := mux.NewRouter()
	r.HandleFunc(control.PathEvents, func(w http.ResponseWriter, r *http.Request) {
		e, err := cloudevent.Receive(r)
		if err == nil {
			err = a.Receive(e)
		}
		if err != nil {
			api.WriteError(w, err)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}).Methods(http.MethodPost)
	r.MethodNotAllowedHandler = refuse(http.StatusMethodNotAllowed, "", "want POST")
	r.NotFoundHandler = refuse(http.StatusNotFound, api.CodeUnknownPath, "events are taken at POST "+control.PathEvents)
	return r
}

func refuse(status int, code, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, api.Errorf(status, code, "%s %s: %s", r.Method, r.URL.Path, message))
	})
}
