package page

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

// CodeForbiddenOrigin refuses a request from another page.
const CodeForbiddenOrigin = "forbidden_origin"

// HeaderToken has the page's token on clients' paths, where Authorization has the client's key.
const HeaderToken = "X-Rouse-Page"

// Remote serves the page on loopback for a server elsewhere, with the permissions of the user that runs it:
//
//  1. The page's own files are public on this machine.
//  2. Everything else needs the token, because every user of the machine can reach a port on loopback, and no foreign
//     Origin.
//  3. It passes on what the page uses of the administrative API, and clients' paths to the front door.
//  4. Token, origin and cookies are not passed on. The other side's credential is added, and never returned.
//
// It is safe for concurrent use.
type Remote struct {
	// Token is the part of the page's address after the #.
	Token        string
	Admin, Front Target
	// Keys serves [admin.PathKeys]; nil: Admin does.
	Keys http.Handler
}

// Target is a server elsewhere.
type Target struct {
	URL       *url.URL
	Transport http.RoundTripper
	// Header is added to each request: the credential.
	Header http.Header
	// Refused reads an unsuccessful answer that is not the server's own; nil: all are.
	Refused func(resp *http.Response, method string, body []byte) error
	// KeyHeader gets the client's key from Authorization, which is removed; empty: none does.
	KeyHeader string
}

const (
	mostBody    = 64 << 20
	mostRefusal = 1 << 20
)

// Handler serves the page and the paths it uses, protected by the token.
func (m Remote) Handler() http.Handler {
	all := m.Behind(Index(), m.withToken)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLocal(r.Host) {
			refuse(w, r, http.StatusForbidden, CodeForbiddenOrigin, fmt.Sprintf("this page is not known as %.100q: ask http://127.0.0.1", r.Host))
			return
		}
		all.ServeHTTP(w, r)
	})
}

// Behind serves the page, and the paths it uses behind a guard, which passes a request to next or answers it. The guard
// is the only protection: m.Token is not checked.
func (m Remote) Behind(index http.Handler, guard func(next http.Handler) http.Handler) http.Handler {
	files, toAdmin, front := Files(), guard(whole(m.Admin.proxy())), guard(whole(m.Front.proxy()))
	keys := toAdmin
	if m.Keys != nil {
		keys = guard(m.Keys)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/":
			index.ServeHTTP(w, r)
		case strings.HasPrefix(path, Prefix):
			files.ServeHTTP(w, r)
		case path == admin.PathKeys:
			keys.ServeHTTP(w, r)
		case asksAdmin(r.Method, path):
			toAdmin.ServeHTTP(w, r)
		case strings.HasPrefix(path, pathClients):
			front.ServeHTTP(w, r)
		default:
			refuse(w, r, http.StatusNotFound, api.CodeUnknownPath, r.Method+" "+path+": there is no such path for the page")
		}
	})
}

const pathClients = "/v1/"

func asksAdmin(method, path string) bool {
	if strings.HasPrefix(path, admin.PathFunctions+"/") {
		return method == http.MethodGet || method == http.MethodPost || method == http.MethodDelete
	}
	switch path {
	case admin.PathInfo, admin.PathDevices, admin.PathUsage, admin.PathClusters, admin.PathPicks, admin.PathWatch, admin.PathHistory, admin.PathRequests, admin.PathFunctions, control.PathEvents:
		return method == http.MethodGet
	case admin.PathModels:
		return method == http.MethodGet || method == http.MethodPost
	}
	return false
}

func (m Remote) withToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Own(r) {
			refuse(w, r, http.StatusForbidden, CodeForbiddenOrigin, "this server is for no page but its own")
			return
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if strings.HasPrefix(r.URL.Path, pathClients) {
			token = r.Header.Get(HeaderToken)
		}
		if m.Token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(m.Token)) != 1 {
			refuse(w, r, http.StatusUnauthorized, "", "this wants the token that is in the address of the page")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// whole reads a body before it is sent, so that an early answer cuts nothing off.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
		if err != nil {
			refuse(w, r, http.StatusRequestEntityTooLarge, "", fmt.Sprintf("the request can't be read: %v; it may have %d MiB", err, mostBody>>20))
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

func (t Target) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Transport:      t.Transport,
		FlushInterval:  -1, // streams must not be delayed
		ErrorLog:       log.New(io.Discard, "", 0),
		Rewrite:        t.rewrite,
		ModifyResponse: t.answered,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil && !errors.Is(err, context.Canceled) {
				refuse(w, r, http.StatusBadGateway, "", err.Error())
			}
		},
	}
}

func (t Target) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(t.URL)
	h := r.Out.Header
	key := h.Get("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "Sec-") {
			delete(h, name)
		}
	}
	for _, name := range []string{"Authorization", HeaderToken, "Origin", "Referer", "Cookie", "Accept-Encoding"} {
		h.Del(name)
	}
	if key, is := strings.CutPrefix(key, "Bearer "); is && t.KeyHeader != "" {
		h.Set(t.KeyHeader, key)
	}
	maps.Copy(h, t.Header)
}

// answered turns errors of intermediaries into ones that are never 401, 403 or 404, which the page takes for its own.
func (t Target) answered(resp *http.Response) error {
	resp.Header.Del("Set-Cookie")
	if resp.StatusCode < http.StatusBadRequest || t.Refused == nil {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	resp.Body.Close()
	if err != nil {
		return err
	}
	if err := t.Refused(resp, resp.Request.Method, raw); err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	return nil
}

func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	api.WriteErrorTo(w, r, api.Errorf(status, code, "%s", message))
}
