package jobs

import (
	"cmp"
	"errors"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const (
	maxParts = 16
	maxField = 1 << 10
	formCost = 64 << 10 // of the form besides its file
)

type form struct {
	purpose, name string
	keep          time.Duration
	file          *store.Upload
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	kept, err := s.receiveFile(w, r, c, s.cfg.MaxFile+formCost, func(_ io.Reader, file *store.Upload) (name, purpose string, keep time.Duration, err error) {
		f := form{file: file}
		err = s.readForm(r, &f)
		return f.name, f.purpose, f.keep, err
	})
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, fileOf(kept))
	return nil
}

// receiveFile stores a file from a request's body. read writes it, and returns what Commit gets.
func (s *Server) receiveFile(w http.ResponseWriter, r *http.Request, c activator.Caller, limit int64, read func(io.Reader, *store.Upload) (name, purpose string, keep time.Duration, err error)) (store.File, error) {
	if !s.uploads.take(c.Client) {
		return store.File{}, api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "too many files are being uploaded: %d may be at once, and %d of one client: wait for one of yours, or try again", s.uploads.all, s.uploads.each).WithRetryAfter(time.Second)
	}
	defer s.uploads.give(c.Client)
	if r.ContentLength > limit {
		return store.File{}, s.tooLarge()
	}
	in := newPaced(w, r, limit)
	defer in.clearDeadline()
	file, err := s.store.NewUpload(c.Owner())
	if err != nil {
		return store.File{}, err
	}
	name, purpose, keep, err := read(in, file)
	if err != nil {
		file.Discard()
		return store.File{}, in.explain(err)
	}
	return file.Commit(name, purpose, keep)
}

func (s *Server) tooLarge() *api.Error {
	return api.Errorf(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the file is larger than the limit of %s", api.Bytes(s.cfg.MaxFile))
}

func (s *Server) readForm(r *http.Request, f *form) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "multipart/form-data" {
		return api.BadRequest("", "the Content-Type is %.80q: want multipart/form-data with the parts purpose and file", r.Header.Get("Content-Type"))
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return api.BadRequest("", "the form can't be read: %v", err)
	}
	fields := map[string]string{}
	got := false
	for n := 0; ; n++ {
		p, err := parse.NextPart(parts, n, maxParts)
		switch {
		case errors.Is(err, io.EOF):
			return f.check(fields, got)
		case err != nil:
			return err
		}
		name := p.FormName()
		if name != "file" {
			if fields[name], err = field(p, name); err != nil {
				return err
			}
			continue
		}
		if got {
			return api.BadRequest("file", "the form has two files: send one at a time")
		}
		got, f.name = true, clipName(p.FileName())
		if _, err := io.Copy(f.file, p); err != nil {
			return err
		}
		if f.file.Bytes() > s.cfg.MaxFile {
			return s.tooLarge()
		}
	}
}

func field(p *multipart.Part, name string) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(p, maxField+1))
	if err == nil && len(raw) > maxField {
		err = api.BadRequest("", "the part %.40q has more than %d bytes", name, maxField)
	}
	return string(raw), err
}

func clipName(name string) string {
	name = strings.ToValidUTF8(name, "�")
	name = strings.ToValidUTF8(name[:min(len(name), 255)], "")
	return cmp.Or(name, "upload.jsonl")
}

// As at OpenAI.
const (
	leastKeep = time.Hour
	mostKeep  = 30 * 24 * time.Hour
)

func (f *form) check(fields map[string]string, got bool) error {
	f.purpose = fields["purpose"]
	switch {
	case f.purpose == "":
		return absent("purpose")
	case f.purpose != purposeBatch:
		return api.BadRequest("purpose", "the purpose is %.40q: nothing here uses files but batches, want batch", f.purpose)
	case !got:
		return absent("file")
	case f.file.Bytes() == 0:
		return &api.Error{Status: http.StatusBadRequest, Param: "file", Code: "empty_file", Message: "the file is empty"}
	}
	var err error
	f.keep, err = keepFor(fields["expires_after[anchor]"], fields["expires_after[seconds]"], "expires_after")
	return err
}

// keepFor returns 0 if nothing is said.
func keepFor(anchor, seconds, param string) (time.Duration, error) {
	if anchor == "" && seconds == "" {
		return 0, nil
	}
	if anchor != "created_at" {
		return 0, api.BadRequest(param, "%s.anchor is %.40q: want created_at", param, anchor)
	}
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil || !(n >= leastKeep.Seconds() && n <= mostKeep.Seconds()) {
		return 0, api.BadRequest(param, "%s.seconds is %.40q: want a number from %.0f to %.0f", param, seconds, leastKeep.Seconds(), mostKeep.Seconds())
	}
	return time.Duration(math.Round(n)) * time.Second, nil
}

// rate is the least pace of an upload, in bytes per second, on average after [inbound.Idle].
const rate = 16 << 10

// paced is a body of bounded size that the client must send fast enough.
type paced struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time
	moved   time.Time
	n       int64
}

// unwrapper wraps another writer, as [http.ResponseController] has it.
type unwrapper interface{ Unwrap() http.ResponseWriter }

func newPaced(w http.ResponseWriter, r *http.Request, limit int64) *paced {
	p := &paced{control: http.NewResponseController(w), began: time.Now()}
	for inner, wraps := w.(unwrapper); wraps; inner, wraps = w.(unwrapper) {
		w = inner.Unwrap() // package net/http closes the connection of its own writer after too many bytes
	}
	p.ReadCloser = http.MaxBytesReader(w, r.Body, limit)
	r.Body = p
	return p
}

// Read extends the deadline now and then.
func (p *paced) Read(b []byte) (int, error) {
	if now := time.Now(); p.moved.IsZero() || now.Sub(p.moved) > inbound.Idle/4 {
		p.moved = now
		slowest := p.began.Add(inbound.Idle + time.Duration(float64(p.n)/rate*float64(time.Second)))
		if next := now.Add(inbound.Idle); next.Before(slowest) {
			slowest = next
		}
		_ = p.control.SetReadDeadline(slowest) // only a test's connection has no deadlines
	}
	n, err := p.ReadCloser.Read(b)
	p.n += int64(n)
	return n, err
}

func (p *paced) clearDeadline() { _ = p.control.SetReadDeadline(time.Time{}) }

func (p *paced) explain(err error) error {
	var large *http.MaxBytesError
	var known *api.Error
	switch {
	case errors.As(err, &known), errors.As(err, &large), errors.Is(err, store.ErrFull):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return api.Errorf(http.StatusRequestTimeout, "", "the body comes too slowly (%d bytes in %s): send at least %d bytes a second, without pauses of %s", p.n, time.Since(p.began).Round(time.Second), rate, inbound.Idle)
	}
	return api.BadRequest("", "the body can't be read to its end: %v", err)
}
