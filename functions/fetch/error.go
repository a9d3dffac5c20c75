package fetch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Error says why a model could not be fetched.
type Error struct {
	Ref string // without credentials
	Err error
}

func (e *Error) Error() string { return "fetch " + e.Ref + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether another attempt fails the same way.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

type lasting struct{ error }

func (e lasting) Unwrap() error   { return e.error }
func (e lasting) Permanent() bool { return true }

func permanentf(format string, args ...any) error {
	return lasting{fmt.Errorf(format, args...)}
}

// statusError is an answer with an unexpected status.
type statusError struct {
	code  int
	url   string        // redacted
	hint  string        // advice, or the server's message
	after time.Duration // Retry-After
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s answers %d %s", e.url, e.code, http.StatusText(e.code))
	if e.hint != "" {
		s += ": " + e.hint
	}
	return s
}

// Permanent reports whether the answer blames the request.
func (e *statusError) Permanent() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return false
	}
	return e.code < 500
}

// code returns an error's HTTP status, or 0.
func code(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.code
	}
	return 0
}

// redact returns u without secrets: a signed URL's query is one.
func redact(u *url.URL) string {
	r := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.RawQuery != "" {
		return r.String() + "?…"
	}
	return r.String()
}

// transportError hides the URL's credentials.
func transportError(err error) error {
	var e *url.Error
	if !errors.As(err, &e) {
		return err
	}
	where := "the server"
	if u, parseErr := url.Parse(e.URL); parseErr == nil {
		where = redact(u)
	}
	wrapped := fmt.Errorf("%s %s: %w", strings.ToUpper(e.Op), where, e.Err)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) || Permanent(e.Err) {
		return lasting{wrapped}
	}
	return wrapped
}

// DiskError says that the cache's folder has no room for a model.
type DiskError struct {
	Dir    string
	Needed api.Bytes // 0: unknown
	Free   api.Bytes
	Err    error // of a write; nil: space was checked before
}

func (e *DiskError) Error() string {
	switch {
	case e.Err != nil && e.Needed > 0:
		return fmt.Sprintf("%s is full (%s more needed, %s free): delete something there, or choose another folder for the cache: %v", e.Dir, e.Needed, e.Free, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s is full (%s free): delete something there, or choose another folder for the cache: %v", e.Dir, e.Free, e.Err)
	}
	return fmt.Sprintf("%s has too little room: %s needed, %s free: delete something there, or choose another folder for the cache", e.Dir, e.Needed, e.Free)
}

func (e *DiskError) Unwrap() error { return e.Err }

// full reports a lack of room: on the disk, by a quota or a limit of the process.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func fileError(act string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w: the user of this process needs to write there, or choose another folder for the cache", act, err)
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("%s: %w: the cache needs a file system with flock(2)", act, err)
	}
	return fmt.Errorf("%s: %w", act, err)
}
