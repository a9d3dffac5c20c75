package serve

import (
	"errors"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/sample"
)

// retryAfter is what a refused client is told when the engine can't know better: someone else decides on wakes.
const retryAfter = time.Second

// toError is the table from the engine's errors to what a client sees.
func toError(err error) *api.Error {
	var request *engine.RequestError
	var outOfRange *sample.RangeError
	var refused *chat.RefusedError
	var exceeded *chat.BudgetError
	var step *engine.StepError
	var form *constrain.FormError
	switch {
	case errors.As(err, &request):
		e := api.BadRequest(request.Param, "%s", request.Message)
		if request.TooLong {
			e.Code = api.CodeContextLength
		}
		return e
	case errors.As(err, &outOfRange):
		return api.BadRequest(outOfRange.Param, "%s", outOfRange.Error())
	case errors.As(err, &refused):
		return api.BadRequest("messages", "%s", refused.Error())
	case errors.As(err, &exceeded): // the same request would end the same way
		e := api.Errorf(http.StatusUnprocessableEntity, "", "%s: shorten it, or give the model another template", exceeded.Error())
		e.Param = "messages"
		return e
	case errors.Is(err, engine.ErrAsleep), errors.Is(err, engine.ErrInterrupted):
		return unavailable(api.CodeAsleep, err)
	case errors.Is(err, engine.ErrFull), errors.Is(err, chat.ErrBusy):
		return unavailable(api.CodeBusy, err)
	case errors.Is(err, engine.ErrStopped):
		return unavailable(api.CodeShutdown, err)
	case errors.Is(err, engine.ErrBusy), errors.Is(err, engine.ErrWoken):
		return api.Errorf(http.StatusConflict, api.CodeBusy, "%v", err)
	case errors.As(err, &form): // which turned out in the middle of a text
		return api.BadRequest("", "the form that is asked for can't be kept: %s", form.Message)
	case errors.As(err, &step):
		return api.Errorf(http.StatusInternalServerError, api.CodeRuntimeFailed, "%v", err)
	}
	return api.AsError(err)
}

func unavailable(code string, err error) *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, code, "%v", err).WithRetryAfter(retryAfter)
}
