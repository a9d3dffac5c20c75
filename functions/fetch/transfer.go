package fetch

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

const maxAnswer = 64 << 20

// transfer makes one request. nil: the answer was complete.
func (f *fetching) transfer(ctx context.Context, p *part, file file) error {
	if p.size > 0 && !file.sums.any() && p.said.validator() == "" { // nothing shows whether the rest belongs to it
		if err := f.restart(p, file); err != nil {
			return err
		}
	}
	resp, err := f.request(ctx, file, func(h http.Header) {
		if p.size == 0 {
			return
		}
		h.Set("Range", fmt.Sprintf("bytes=%d-", int64(p.size)))
		if !file.sums.any() {
			h.Set("If-Range", p.said.validator())
		}
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := f.begin(p, file, resp); err != nil {
		return err
	}
	return f.take(p, file, resp.Body)
}

var errNoRanges = permanentf("the source sends no part of a file")

func (f *fetching) section(ctx context.Context, file file, at int64, b []byte) error {
	last := at + int64(len(b)) - 1
	resp, err := f.request(ctx, file, func(h http.Header) { h.Set("Range", fmt.Sprintf("bytes=%d-%d", at, last)) })
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK:
		return errNoRanges
	case resp.StatusCode != http.StatusPartialContent:
		return statusOf(resp, file.hint)
	}
	if first, to, total, err := rangeOf(resp); err != nil || first != at || to != last || api.Bytes(total) != file.size {
		return permanentf("%s sent another part than the requested one, or the file's size differs from its listing", file.from)
	}
	if n, err := io.ReadFull(resp.Body, b); err != nil {
		return fmt.Errorf("%s broke off after %d of %d bytes: %w", file.from, n, len(b), err)
	}
	return nil
}

// request's answer fails if nothing comes for Config.Stall.
func (f *fetching) request(ctx context.Context, file file, further func(http.Header)) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	body := &lively{ctx: ctx, cancel: cancel, limit: f.c.cfg.Stall}
	body.stall = time.AfterFunc(body.limit, func() { cancel(fmt.Errorf("%s brought nothing for %s", file.from, body.limit)) })
	req, err := file.get(ctx)
	if err == nil {
		req.Header.Set("Accept-Encoding", "identity")
		further(req.Header)
		var resp *http.Response
		if resp, err = cmp.Or(file.client, f.c.client).Do(req); err == nil {
			body.ReadCloser, resp.Body = resp.Body, body
			body.stall.Reset(body.limit)
			return resp, nil
		}
		err = cause(ctx, transportError(err))
	}
	body.stall.Stop()
	cancel(nil)
	return nil, err
}

// lively restarts its stall timer at each read.
type lively struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  *time.Timer
	limit  time.Duration
}

func (l *lively) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	if n > 0 {
		l.stall.Reset(l.limit)
	}
	if err != nil && err != io.EOF {
		err = cause(l.ctx, err)
	}
	return n, err
}

func (l *lively) Close() error {
	l.stall.Stop()
	defer l.cancel(nil)
	return l.ReadCloser.Close()
}

func (f *fetching) take(p *part, file file, body io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if total := p.total(); total >= 0 && p.size+api.Bytes(n) > total {
				return permanentf("%s is longer than the %d bytes that it should have", file.from, int64(total))
			}
			if _, err := p.Write(buf[:n]); err != nil {
				return err
			}
			f.meter.got(file.name, api.Bytes(n))
			if limit := f.c.cfg.Limit; limit > 0 && p.size > limit {
				p.discard()
				return permanentf("%s is larger than the cache may be, %s", file.from, limit)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s broke off after %d bytes: %w", file.from, int64(p.size), err)
		}
	}
	if total := p.total(); total >= 0 && p.size < total {
		return fmt.Errorf("%s broke off after %d of %d bytes", file.from, int64(p.size), int64(total))
	}
	return nil
}

func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// rangeOf returns the part of a file that an answer has, and the file's size.
func rangeOf(resp *http.Response) (first, last, total int64, err error) {
	_, err = fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total)
	return first, last, total, err
}

// begin checks an answer's head, and prepares the part for its body.
func (f *fetching) begin(p *part, file file, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		first, _, total, err := rangeOf(resp)
		if err != nil {
			return cmp.Or(f.restart(p, file), fmt.Errorf("%s sent a part without its range", file.from))
		}
		changed := !file.sums.any() && heard(resp, total).validator() != p.said.validator()
		if p.size == 0 && first == 0 {
			return p.note(heard(resp, total))
		}
		if api.Bytes(first) != p.size || changed || (p.total() >= 0 && api.Bytes(total) != p.total()) {
			return cmp.Or(f.restart(p, file), fmt.Errorf("%s has changed, or answers with another part than asked for", file.from))
		}
		return nil
	case http.StatusOK:
		if p.size > 0 {
			if err := f.restart(p, file); err != nil {
				return err
			}
		}
		s := heard(resp, resp.ContentLength)
		if file.size >= 0 && s.Size >= 0 && s.Size != file.size {
			return permanentf("%s has %d bytes, and its listing says %d", file.from, int64(s.Size), int64(file.size))
		}
		return p.note(s)
	case http.StatusRequestedRangeNotSatisfiable:
		return cmp.Or(f.restart(p, file), fmt.Errorf("%s has changed: it is shorter than what has arrived", file.from))
	}
	return statusOf(resp, file.hint)
}

func (f *fetching) restart(p *part, file file) error {
	f.meter.found(file.name, -p.size)
	return p.restart(file)
}

func heard(resp *http.Response, size int64) said {
	s := said{Size: api.Bytes(size), Modified: resp.Header.Get("Last-Modified")}
	if etag := resp.Header.Get("ETag"); strings.HasPrefix(etag, `"`) {
		s.ETag = etag
	} else {
		s.Weak = etag
	}
	// Amazon's checksum covers whole objects; one of an upload in parts ends with "-N".
	if sum, err := base64.StdEncoding.DecodeString(resp.Header.Get("X-Amz-Checksum-Sha256")); err == nil && len(sum) == 32 && resp.StatusCode == http.StatusOK {
		s.SHA256 = hex.EncodeToString(sum)
	}
	if encryption := resp.Header.Get("X-Amz-Server-Side-Encryption"); resp.Header.Get("X-Amz-Request-Id") != "" && (encryption == "" || encryption == "AES256") && resp.Header.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") == "" {
		if sum := strings.Trim(s.ETag, `"`); isHex(sum, 32) {
			s.MD5 = sum
		}
	}
	return s
}

// again waits for the next attempt, or returns the error to give up with.
func (c *Cache) again(ctx context.Context, failures int, err error) error {
	var disk *DiskError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case Permanent(err), errors.As(err, &disk):
		return err
	case failures >= c.cfg.Attempts:
		return fmt.Errorf("%w (after %d attempts)", err, failures)
	}
	pause := min(c.cfg.Backoff<<min(failures-1, 10), 30*time.Second)
	pause = pause/2 + rand.N(pause/2+1) // so that many instances do not come back at once
	var status *statusError
	if errors.As(err, &status) && status.after > 0 {
		pause = min(status.after, time.Minute)
	}
	c.cfg.Again(err)
	return bell.Sleep(ctx, pause)
}

// hint returns advice about an unsuccessful answer, or "".
type hint func(code int, header http.Header) string

func (c *Cache) retry(ctx context.Context, try func() error) error {
	for failures := 1; ; failures++ {
		err := try()
		if err == nil {
			return nil
		}
		if err = c.again(ctx, failures, err); err != nil {
			return err
		}
	}
}

// pages are those of one listing, by address or token.
type pages map[string]bool

const maxPages = 10_000

// add refuses a listing that returns to a page, or has too many.
func (p pages) add(id string) error {
	if p[id] || len(p) == maxPages {
		return permanentf("the listing does not end: it returns to a page, or has more than %d pages", maxPages)
	}
	p[id] = true
	return nil
}

// do passes whole 2xx answers to read.
func (c *Cache) do(ctx context.Context, h hint, get func(context.Context) (*http.Request, error), read func(http.Header, []byte) error) error {
	return c.retry(ctx, func() error {
		return c.exchange(ctx, c.client, get, func(resp *http.Response) error {
			from := redact(resp.Request.URL)
			if resp.StatusCode < 200 || resp.StatusCode > 299 {
				return statusOf(resp, h)
			}
			body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
			if err != nil {
				return fmt.Errorf("read the answer of %s: %w", from, err)
			}
			if len(body) > maxAnswer {
				return permanentf("the answer of %s is longer than %d bytes", from, maxAnswer)
			}
			if err := read(resp.Header, body); err != nil {
				return permanentf("the answer of %s makes no sense: %w", from, err)
			}
			return nil
		})
	})
}

func getter(address string) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	}
}

func (c *Cache) exchange(ctx context.Context, client *http.Client, get func(context.Context) (*http.Request, error), read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*c.cfg.Stall, errors.New("the source takes too long to answer"))
	defer cancel()
	req, err := get(ctx)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return cause(ctx, transportError(err))
	}
	defer resp.Body.Close()
	return cause(ctx, read(resp))
}

func statusOf(resp *http.Response, h hint) error {
	e := &statusError{code: resp.StatusCode, url: redact(resp.Request.URL)}
	if h != nil {
		e.hint = h(resp.StatusCode, resp.Header)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.after = time.Duration(seconds) * time.Second
	}
	return e
}

func decode(v any) func(http.Header, []byte) error {
	return func(_ http.Header, body []byte) error { return json.Unmarshal(body, v) }
}

// followSafely keeps credentials from other servers, and never goes from https to http.
func followSafely(client *http.Client) *http.Client {
	safe := *client
	safe.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL
		switch {
		case len(via) >= 10:
			return permanentf("more than 10 redirects")
		case req.URL.Scheme != "https" && (req.URL.Scheme != "http" || from.Scheme == "https"):
			return permanentf("redirected to %s, which is not encrypted: refused", redact(req.URL))
		case req.URL.Host != via[0].URL.Host:
			req.Header.Del("Authorization")
			req.Header.Del("Cookie")
		}
		return nil
	}
	return &safe
}
