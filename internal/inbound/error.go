package inbound

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error says why a request is refused. It is for the client; how it looks in an API is that API's to say.
type Error struct {
	Status  int
	Code    string // a word that programs branch on; empty: there is none
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// HTTP is what the answer says besides the message: its status, its code, and after what time the client may try again; 0: it is not told.
func (e *Error) HTTP() (status int, code string, retryAfter time.Duration) {
	if e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests {
		retryAfter = time.Second
	}
	return e.Status, e.Code, retryAfter
}

// The codes of package api for these cases.
const (
	codeFull     = "hold_full"
	codeTooLarge = "body_too_large"
)

func refuse(status int, code, format string, args ...any) error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// size prints bytes in the largest binary unit that leaves at least 1.
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
