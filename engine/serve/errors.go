package serve

import (
	"errors"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/sample"
)

// retryAfter is constant: the engine does not decide on wakes.
const retryAfter = time.Second

func toError(err error) *Error {
	var request *engine.RequestError
	var outOfRange *sample.RangeError
	var refused *chat.RefusedError
	var exceeded *chat.BudgetError
	var step *engine.StepError
	var form *constrain.FormError
	switch {
	case errors.As(err, &request):
		e := badRequest(request.Param, "%s", request.Message)
		if request.TooLong {
			e.Code, e.Tokens, e.MaxTokens, e.Context = codeContextLength, request.Tokens, request.MaxTokens, request.Context
		}
		return e
	case errors.As(err, &outOfRange):
		return badRequest(outOfRange.Param, "%s", outOfRange.Error())
	case errors.As(err, &refused):
		return badRequest("messages", "%s", refused.Error())
	case errors.As(err, &exceeded): // retrying fails the same way
		e := errorf(http.StatusUnprocessableEntity, "", "%s: shorten it, or give the model another template", exceeded.Error())
		e.Param = "messages"
		return e
	case errors.Is(err, engine.ErrAsleep), errors.Is(err, engine.ErrInterrupted):
		return unavailable(codeAsleep, err)
	case errors.Is(err, engine.ErrAdapterOther):
		return anotherModel()
	case errors.Is(err, engine.ErrFull), errors.Is(err, chat.ErrBusy):
		return unavailable(codeBusy, err)
	case errors.Is(err, engine.ErrStopped):
		return unavailable(codeShutdown, err)
	case errors.Is(err, engine.ErrBusy), errors.Is(err, engine.ErrWoken):
		return errorf(http.StatusConflict, codeBusy, "%v", err)
	case errors.As(err, &form): // found in the middle of a text
		return badRequest("", "the form that is asked for can't be kept: %s", form.Message)
	case errors.As(err, &step):
		return errorf(http.StatusInternalServerError, codeStepFailed, "%v", err)
	}
	return asError(err)
}

// renamed changes err's param from named to as.
func renamed(err error, named, as string) error {
	if own, ok := errors.AsType[*Error](err); ok && own.Param == named {
		e := *own
		e.Param = as
		return &e
	}
	if refused, ok := errors.AsType[*engine.RequestError](err); ok && refused.Param == named {
		e := *refused
		e.Param = as
		return &e
	}
	return err
}

func unavailable(code string, err error) *Error {
	e := errorf(http.StatusServiceUnavailable, code, "%v", err)
	e.RetryAfter = retryAfter
	return e
}
