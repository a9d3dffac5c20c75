package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

const (
	minToken = 16
	maxToken = 512
)

func (s *server) visitor(r *http.Request) (addr netip.Addr, token string, leave func(), err error) {
	if addr, err = from(r); err != nil {
		return addr, "", nil, err
	}
	if leave, err = s.callers.enter(addr); err != nil {
		return addr, "", nil, err
	}
	token = bearer(r)
	if len(token) < minToken || len(token) > maxToken {
		leave()
		return addr, "", nil, api.Errorf(http.StatusUnauthorized, "", "an instance sends a random token of its own, of %d to %d characters, as a bearer token; this one has %d",
			minToken, maxToken, len(token))
	}
	return addr, token, leave, nil
}

func (s *server) join(w http.ResponseWriter, r *http.Request) {
	addr, token, leave, err := s.visitor(r)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	defer leave()
	defer bound(w, r, maxReport)()
	var req control.RegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			api.WriteError(w, err)
			return
		}
		api.WriteError(w, api.BadRequest("", "the body is no request to join: %v; want a JSON object with instance, namespace, revision and port", err))
		return
	}
	if err := check(req); err != nil {
		api.WriteError(w, err)
		return
	}
	answer, err := s.Fleet.Join(r.Context(), req, addr, token)
	if err != nil {
		s.Log.Debug("an instance may not join", "instance", req.Instance, "namespace", req.Namespace, "from", addr, "error", err)
		api.WriteError(w, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, answer)
}

// maxName is Kubernetes'.
const maxName = 253

func check(r control.RegisterRequest) error {
	for _, f := range []struct{ field, value string }{
		{"instance", string(r.Instance)}, {"namespace", r.Namespace}, {"revision", r.Revision},
	} {
		if f.value == "" || len(f.value) > maxName {
			return api.BadRequest(f.field, "want the field %q with the pod's own (1 to %d characters, have %d): is this the function's program in a Knative revision's pod?", f.field, maxName, len(f.value))
		}
	}
	if r.Port < 1 || r.Port > 65535 {
		return api.BadRequest("port", "port %d: want the port that the instance listens on, 1 to 65535", r.Port)
	}
	return nil
}

func (s *server) receive(w http.ResponseWriter, r *http.Request) {
	if err := s.take(w, r); err != nil {
		api.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *server) take(w http.ResponseWriter, r *http.Request) error {
	if s.trusted(r) {
		defer bound(w, r, cloudevent.MaxSize+1)()
		e, err := cloudevent.Receive(r)
		if err != nil {
			return err
		}
		if e.Type != api.EventDemand && e.Type != api.EventWoken && e.Type != api.EventUsage {
			return api.BadRequest("type", "event %.100s has the type %.100q: with the cluster's token want %s, %s or %s; instances send %s with their own", e.ID, e.Type, api.EventDemand, api.EventWoken, api.EventUsage, api.EventInstanceState)
		}
		if err := s.Decider.Receive(e); err != nil {
			return err
		}
		if e.Type == api.EventDemand {
			s.tellScale(w, e)
		}
		return nil
	}
	addr, token, leave, err := s.visitor(r)
	if err != nil {
		return err
	}
	defer leave()
	defer bound(w, r, maxReport)()
	e, err := cloudevent.Receive(r)
	switch {
	case err != nil:
		return err
	case e.Type == api.EventDemand:
		return errToken("an event of the type " + api.EventDemand)
	case e.Type != api.EventInstanceState:
		return api.BadRequest("type", "event %.100s has the type %.100q: want %s from an instance, %s from an activator", e.ID, e.Type, api.EventInstanceState, api.EventDemand)
	}
	var status api.InstanceStatus
	if err := json.Unmarshal(e.Data, &status); err != nil {
		return api.BadRequest("data", "event %.100s of type %s: %v", e.ID, e.Type, err)
	}
	if status.Instance == "" || status.Function == "" || !slices.Contains(api.States, status.State) {
		return api.BadRequest("data", "event %.100s: want a function, an instance and one of the states of an instance (have %.50q)", e.ID, status.State)
	}
	return s.Fleet.Report(status, addr, token)
}

// tellScale answers a demand with the scale that keeps its function at 0. Other reasons for waiting name other
// functions, which clients must not see.
func (s *server) tellScale(w http.ResponseWriter, e api.Event) {
	var d api.Demand
	if err := json.Unmarshal(e.Data, &d); err != nil || d.Waiting <= 0 {
		return
	}
	v, found := s.Decider.Status(d.Function)
	if !found {
		return
	}
	w.Header().Set(control.HeaderFunction, string(d.Function))
	if v.Scale != nil && v.Desired == 0 {
		w.Header().Set(control.HeaderScaled, v.Scale.String())
	}
}
