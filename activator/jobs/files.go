package jobs

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/rouse-dev/rouse/activator"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
)

const purposeBatch = "batch"

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

func query(v url.Values, usual, most int) (q store.Query, err error) {
	q.After = v.Get("after")
	if q.Limit, err = activator.Limit(v, usual, most); err != nil {
		return q, err
	}
	q.Oldest, err = Oldest(v)
	return q, err
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
	api.WriteJSON(w, http.StatusOK, activator.PageOf(files, more, fileOf, func(f store.File) string { return f.ID }))
	return nil
}

func (s *Server) showFile(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	f, err := s.store.File(c.Owner(), r.PathValue("id"))
	if err == nil {
		api.WriteJSON(w, http.StatusOK, fileOf(f))
	}
	return err
}

func (s *Server) fileContent(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	body, f, err := s.store.OpenFile(c.Owner(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream") // browsers don't render it
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	http.ServeContent(w, r, "", f.Created, body)
	return nil
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	id := r.PathValue("id")
	err := s.store.DeleteFile(c.Owner(), id)
	if errors.Is(err, store.ErrInUse) {
		return api.Errorf(http.StatusConflict, "", "the file %s is the input of a batch that runs: cancel that first", id)
	}
	return writeDeleted(w, err, id, "file")
}

type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

func writeDeleted(w http.ResponseWriter, err error, id, object string) error {
	if err == nil {
		api.WriteJSON(w, http.StatusOK, deleted{ID: id, Object: object, Deleted: true})
	}
	return err
}

const maxJSON = 64 << 10

func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	in := newPaced(w, r, maxJSON)
	defer in.clearDeadline()
	raw, err := io.ReadAll(in)
	if err != nil {
		return in.explain(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return api.BadRequest("", "the body is no such JSON object: %v", api.Explain(err))
	}
	return nil
}
