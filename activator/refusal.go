package activator

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// explain adds to e, if it reports a failed start, the reason, if the caller may know it.
func (a *Activator) explain(e *api.Error, f api.FunctionName, r *http.Request) *api.Error {
	if a.deps.LastError == nil || e.Code != api.CodeStartFailed && e.Code != api.CodeUnhealthy {
		return e
	}
	t := *e
	if why := a.deps.LastError(r, f); why != "" {
		t.Message = fmt.Sprintf("%s could not be brought up: %s", f, why)
	}
	return &t
}

// notStored refuses a request that uses a store of responses: in front of this activator nothing handles the field. how
// is [Config.Stored].
func notStored(field, how string) *api.Error {
	return api.BadRequest(field, "%s can't be kept: responses are not stored here: %s, or leave it out", field, cmp.Or(how, "this server has no store"))
}
