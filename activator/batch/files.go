package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/api"
)

// purposeBatch is the purpose of an input; the store makes files of the purpose batch_output.
const purposeBatch = "batch"

// fileObject is OpenAI's file.
type fileObject struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Bytes    int64  `json:"bytes"`
	Created  int64  `json:"created_at"`
	Expires  int64  `json:"expires_at"`
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
	Status   string `json:"status"`
}

func fileOf(f store.File) fileObject {
	return fileObject{ID: f.ID, Object: "file", Bytes: f.Bytes, Created: f.Created.Unix(), Expires: f.Expires.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
}

// page is a part of a list, as OpenAI's clients read it.
type page[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
}

func pageOf[T, R any](records []R, more bool, object func(R) T, id func(R) string) page[T] {
	p := page[T]{Object: "list", Data: make([]T, len(records)), More: more}
	for k, r := range records {
		p.Data[k] = object(r)
	}
	if n := len(records); n > 0 {
		first, last := id(records[0]), id(records[n-1])
		p.First, p.Last = &first, &last
	}
	return p
}

// query reads the parameters of a list.
func query(v url.Values, usual, most int) (q store.Query, err error) {
	q.After, q.Limit = v.Get("after"), usual
	if text := v.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > most {
			return q, api.BadRequest("limit", "limit is %.40q: want a number from 1 to %d", text, most)
		}
	}
	switch order := v.Get("order"); order {
	case "", "desc":
	case "asc":
		q.Oldest = true
	default:
		return q, api.BadRequest("order", "order is %.40q: want asc or desc", order)
	}
	return q, nil
}

func (s *Server) listFiles(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	v := r.URL.Query()
	q, err := query(v, 10_000, 10_000)
	if err != nil {
		return err
	}
	files, more, err := s.store.Files(c.Owner(), v.Get("purpose"), q)
	if errors.Is(err, store.ErrNotFound) {
		return api.BadRequest("after", "there is no file %.80q to go on after", q.After)
	} else if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, pageOf(files, more, fileOf, func(f store.File) string { return f.ID }))
	return nil
}

// noFile says which file is not there.
func noFile(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return &api.Error{Status: http.StatusNotFound, Param: "id", Message: fmt.Sprintf("there is no file %.80q", id)}
	}
	return err
}

func (s *Server) showFile(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	f, err := s.store.File(c.Owner(), r.PathValue("id"))
	if err != nil {
		return noFile(err, r.PathValue("id"))
	}
	api.WriteJSON(w, http.StatusOK, fileOf(f))
	return nil
}

// fileContent sends the body of a file, or the range of it that is asked for.
func (s *Server) fileContent(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	body, f, err := s.store.OpenFile(c.Owner(), r.PathValue("id"))
	if err != nil {
		return noFile(err, r.PathValue("id"))
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream") // a browser shows none of it
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	http.ServeContent(w, r, "", f.Created, body)
	return nil
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	err := s.store.DeleteFile(c.Owner(), id)
	if errors.Is(err, store.ErrInUse) {
		return api.Errorf(http.StatusConflict, "", "the file %s is the input of a batch that runs: cancel that first", id)
	} else if err != nil {
		return noFile(err, id)
	}
	api.WriteJSON(w, http.StatusOK, deleted{ID: id, Object: "file", Deleted: true})
	return nil
}

// deleted says that something is not there any more.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Bounds of a form besides its file.
const (
	maxParts = 16
	maxField = 1 << 10
	formCost = 64 << 10 // what the form may take besides its file
)

// form is what a client uploads.
type form struct {
	purpose, name string
	keep          time.Duration
	file          *store.Upload
}

// upload takes in a file.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		return api.Errorf(http.StatusTooManyRequests, api.CodeBusy, "%d files are being uploaded, as many as may be: try again", cap(s.uploads)).WithRetryAfter(time.Second)
	}
	if r.ContentLength > s.cfg.MaxFile+formCost {
		return s.tooLarge()
	}
	in := newPaced(w, r, s.cfg.MaxFile+formCost)
	defer in.end()
	file, err := s.store.NewUpload(c.Owner())
	if err != nil {
		return err
	}
	f := form{file: file}
	if err := s.readForm(r, &f); err != nil {
		f.file.Discard()
		return in.explain(err, s.tooLarge())
	}
	kept, err := file.Commit(f.name, f.purpose, f.keep)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, fileOf(kept))
	return nil
}

func (s *Server) tooLarge() *api.Error {
	return api.Errorf(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the file is larger than the limit of %s", api.Bytes(s.cfg.MaxFile))
}

// readForm reads the parts of a form: the file goes straight to disk.
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
		p, err := parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return f.check(fields, got)
		case err != nil:
			return err
		case n >= maxParts:
			return api.BadRequest("", "the form has more than %d parts: want purpose and file", maxParts)
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

// field reads the value of a part that is no file.
func field(p *multipart.Part, name string) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(p, maxField+1))
	if err == nil && len(raw) > maxField {
		err = api.BadRequest("", "the part %.40q has more than %d bytes", name, maxField)
	}
	return string(raw), err
}

// clipName is the name of a file, as long as it may be.
func clipName(name string) string {
	name = strings.ToValidUTF8(name, "�")
	for len(name) > 255 {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	if name == "" {
		return "upload.jsonl"
	}
	return name
}

// Bounds of expires_after, as OpenAI's.
const (
	leastKeep = time.Hour
	mostKeep  = 30 * 24 * time.Hour
)

// check says what is wrong with a form whose parts were read.
func (f *form) check(fields map[string]string, got bool) error {
	f.purpose = fields["purpose"]
	switch {
	case f.purpose == "":
		return &api.Error{Status: http.StatusBadRequest, Param: "purpose", Code: "missing_required_parameter", Message: "the part purpose is missing: want batch"}
	case f.purpose != purposeBatch:
		return api.BadRequest("purpose", "the purpose is %.40q: nothing here uses files but batches, want batch", f.purpose)
	case !got:
		return &api.Error{Status: http.StatusBadRequest, Param: "file", Code: "missing_required_parameter", Message: "the part file is missing"}
	case f.file.Bytes() == 0:
		return &api.Error{Status: http.StatusBadRequest, Param: "file", Code: "empty_file", Message: "the file is empty"}
	}
	var err error
	f.keep, err = keepFor(fields["expires_after[anchor]"], fields["expires_after[seconds]"], "expires_after")
	return err
}

// keepFor reads how long a file is kept; 0: the client does not say.
func keepFor(anchor, seconds, param string) (time.Duration, error) {
	if anchor == "" && seconds == "" {
		return 0, nil
	}
	if anchor != "created_at" {
		return 0, api.BadRequest(param, "%s.anchor is %.40q: want created_at", param, anchor)
	}
	n, err := strconv.ParseFloat(seconds, 64)
	if err != nil || !(n >= leastKeep.Seconds() && n <= mostKeep.Seconds()) {
		return 0, api.BadRequest(param, "%s.seconds is %.40q: want a number from %v to %v", param, seconds, leastKeep.Seconds(), mostKeep.Seconds())
	}
	return time.Duration(math.Round(n)) * time.Second, nil
}

// Pace that a client keeps while it sends.
const (
	idle = 10 * time.Second
	rate = 1 << 10 // bytes a second, on the mean, after the first idle
)

// paced is a body that a client sends fast enough, and of which it sends no more than it may.
type paced struct {
	in      io.Reader
	body    io.Closer
	control *http.ResponseController
	began   time.Time
	moved   time.Time
	n       int64
}

// newPaced puts itself in the place of the body.
func newPaced(w http.ResponseWriter, r *http.Request, limit int64) *paced {
	limited := http.MaxBytesReader(w, r.Body, limit)
	p := &paced{in: limited, body: limited, control: http.NewResponseController(w), began: time.Now()}
	r.Body = p
	return p
}

// Read moves the deadline on, now and then.
func (p *paced) Read(b []byte) (int, error) {
	if now := time.Now(); p.moved.IsZero() || now.Sub(p.moved) > idle/4 {
		p.moved = now
		slowest := p.began.Add(idle + time.Duration(float64(p.n)/rate*float64(time.Second)))
		if next := now.Add(idle); next.Before(slowest) {
			slowest = next
		}
		_ = p.control.SetReadDeadline(slowest) // a connection without deadlines is a test's
	}
	n, err := p.in.Read(b)
	p.n += int64(n)
	return n, err
}

// Close implements [io.Closer].
func (p *paced) Close() error { return p.body.Close() }

// end takes the deadline back.
func (p *paced) end() { _ = p.control.SetReadDeadline(time.Time{}) }

// explain puts an error of reading into the client's words.
func (p *paced) explain(err error, tooLarge *api.Error) error {
	var large *http.MaxBytesError
	var known *api.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, store.ErrFull):
		return err
	case errors.As(err, &large):
		return tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return api.Errorf(http.StatusRequestTimeout, "", "the body comes too slowly (%d bytes in %s): send at least %d a second, without pauses of %s", p.n, time.Since(p.began).Round(time.Second), rate, idle)
	}
	return api.BadRequest("", "the body can't be read to its end: %v", err)
}

// maxJSON bounds the body of a request about batches.
const maxJSON = 64 << 10

// readJSON reads such a body.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	in := newPaced(w, r, maxJSON)
	defer in.end()
	raw, err := io.ReadAll(in)
	if err != nil {
		return in.explain(err, api.Errorf(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the body is larger than the limit of %s", api.Bytes(maxJSON)))
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return api.BadRequest("", "the body is no such JSON object: %v", err)
	}
	return nil
}
