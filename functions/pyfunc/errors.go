package pyfunc

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// failure is an error in MLflow's own shape: {"error_code", "message", "stack_trace"}.
type failure struct {
	// Status of the answer; 0: 400.
	Status int `json:"-"`
	// Code is MLflow's name of the error; if empty, it follows from Status.
	Code    string `json:"error_code"`
	Message string `json:"message"`
	// Trace is the cause of a failure while the model evaluates. Clients of MLflow
	// expect it in the field of a Python server's stack trace.
	Trace string `json:"stack_trace,omitempty"`
	// OpenAI is the OpenAI error object of the runtime's own answer, if there was one.
	OpenAI json.RawMessage `json:"error,omitempty"`
}

// Error returns the message.
func (f failure) Error() string { return f.Message }

// asFailure returns the failure of an error.
func asFailure(err error) failure {
	if f, ok := errors.AsType[failure](err); ok {
		return f
	}
	e := api.AsError(err)
	return failure{Status: e.Status, Message: e.Message}
}

// invalid returns MLflow's refusal of an invalid input.
func invalid(message string) failure { return failure{Message: "Invalid input. " + message} }

// unexpected returns MLflow's error for any failure while a model evaluates.
func unexpected(cause string) failure {
	return failure{
		Message: "Encountered an unexpected error while evaluating the model. Verify that the serialized input Dataframe" +
			" is compatible with the model for inference. Error: " + cause,
		Trace: cause,
	}
}

// fail writes a failure. Nothing may have been written before.
func fail(w http.ResponseWriter, f failure) {
	f.Status = cmp.Or(f.Status, http.StatusBadRequest)
	f.Code = cmp.Or(f.Code, api.MLflowCode(f.Status))
	var body strings.Builder
	out := json.NewEncoder(&body)
	out.SetEscapeHTML(false) // as Python does
	_ = out.Encode(f)        // strings always marshal, and OpenAI was valid JSON before
	answer(w, f.Status, "application/json", strings.TrimSuffix(body.String(), "\n"))
}
