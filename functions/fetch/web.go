package fetch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
)

type web struct {
	c   *Cache
	ref Ref
}

// plan asks for the first byte: signed URLs allow only GET.
func (w *web) plan(ctx context.Context) (*plan, error) {
	base := path.Base(w.ref.url.Path)
	if safeName(base) != nil {
		base = "model"
	}
	f := file{name: base, size: -1, from: redact(w.ref.url), id: w.ref.url.String(), get: getter(w.ref.url.String()), hint: w.hint, credential: new(string)}
	if w.ref.url.User != nil || w.ref.url.RawQuery != "" { // holders of the same URL may have the file
		*f.credential = w.ref.url.String()
	}
	if w.ref.url.Scheme == "http" && w.ref.sha256 == "" {
		w.c.cfg.Logger.Warn("the network can change a model fetched over http: use https, or #sha256=…", "ref", w.ref.String())
	}
	var s said
	err := w.c.retry(ctx, func() (err error) {
		s, err = w.head(ctx, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.size = s.Size
	revision := cmp.Or(s.ETag, s.Weak, s.Modified)
	if revision == "" && w.ref.sha256 == "" {
		w.c.cfg.Logger.Warn("the server sends neither ETag nor Last-Modified: the model is fetched again at each start, unless the reference ends in #sha256=…", "ref", w.ref.String())
	}
	return &plan{revision: revision, files: []file{f}}, nil
}

func (w *web) head(ctx context.Context, f file) (said, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.c.cfg.Stall, fmt.Errorf("%s does not answer", redact(w.ref.url)))
	defer cancel()
	req, err := f.get(ctx)
	if err != nil {
		return said{}, err
	}
	req.Header.Set("Range", "bytes=0-0")
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := w.c.client.Do(req)
	if err != nil {
		return said{}, cause(ctx, transportError(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK: // without ranges it sends all: the connection is dropped
		return heard(resp, resp.ContentLength), nil
	case http.StatusPartialContent:
		total := int64(-1)
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes 0-0/%d", &total); err != nil {
			total = -1
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 1) // so that the connection can be reused
		return heard(resp, total), nil
	case http.StatusRequestedRangeNotSatisfiable:
		return said{}, permanentf("%s is empty", redact(w.ref.url))
	}
	return said{}, statusOf(resp, w.hint)
}

func (w *web) hint(code int, _ http.Header) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the server wants credentials, or a signed URL has expired"
	case http.StatusNotFound, http.StatusGone:
		return "there is no such file: check the URL"
	}
	return ""
}
