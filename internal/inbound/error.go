package inbound

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is why a request is refused, for the client. Its wire form depends on the API.
type Error struct {
	Status  int
	Code    string // a code for programs; empty: none
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// HTTP returns the answer's status, code and retry delay; 0: no delay is sent.
func (e *Error) HTTP() (status int, code string, retryAfter time.Duration) {
	if e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests {
		retryAfter = time.Second
	}
	return e.Status, e.Code, retryAfter
}

// The corresponding codes of package api.
const (
	codeFull     = "hold_full"
	codeTooLarge = "body_too_large"
)

func refuse(status int, code, format string, args ...any) error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// size formats bytes in the largest binary unit that leaves at least 1.
func size(bytes int64) string {
	v, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + unit
}
