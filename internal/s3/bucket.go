package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Bucket is a bucket of a service.
type Bucket struct {
	name    string
	service Service
	client  *http.Client
	region  atomic.Pointer[string]
}

// NewBucket returns a Bucket. It sends no request.
func NewBucket(service Service, name string) *Bucket {
	b := &Bucket{name: name, service: service, client: &http.Client{
		// A signature is valid for one host: redirects can't be followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: true},
	}}
	region := cmp.Or(service.Region, "us-east-1")
	b.region.Store(&region)
	return b
}

// Close closes idle connections.
func (b *Bucket) Close() { b.client.CloseIdleConnections() }

var (
	// ErrNotFound means that the object does not exist. A missing bucket is a StatusError.
	ErrNotFound  = errors.New("there is no such object")
	ErrCondition = errors.New("the object is not what it was")
)

// StatusError is any other error response.
type StatusError struct {
	Status  int
	Code    string // the service's own
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the S3 service answered %d %s %.200s", e.Status, e.Code, e.Message)
}

// Condition restricts a write.
type Condition struct {
	// None requires that the object does not exist.
	None bool
	// ETag, if not empty, must match the replaced object.
	ETag string
}

// Put returns an object's entity tag. ErrCondition: the condition does not hold, or there is nothing to replace.
func (b *Bucket) Put(ctx context.Context, key string, body []byte, when Condition) (etag string, err error) {
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	switch {
	case when.None:
		h.Set("If-None-Match", "*")
	case when.ETag != "":
		h.Set("If-Match", when.ETag)
	}
	resp, err := b.do(ctx, http.MethodPut, key, nil, h, body)
	if err != nil {
		if when.ETag != "" && errors.Is(err, ErrNotFound) {
			err = ErrCondition
		}
		return "", err
	}
	defer resp.Body.Close()
	return resp.Header.Get("ETag"), nil
}

// Get opens n bytes of an object from an offset, or all if n is 0. The caller closes the body.
func (b *Bucket) Get(ctx context.Context, key string, from, n int64) (body io.ReadCloser, etag string, err error) {
	h := http.Header{}
	if from > 0 || n > 0 {
		end := ""
		if n > 0 {
			end = strconv.FormatInt(from+n-1, 10)
		}
		h.Set("Range", fmt.Sprintf("bytes=%d-%s", from, end))
	}
	resp, err := b.do(ctx, http.MethodGet, key, nil, h, nil)
	if err != nil {
		return nil, "", err
	}
	if h.Get("Range") != "" && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close()
		return nil, "", &StatusError{Status: resp.StatusCode, Message: "a range was asked for, and the whole came"}
	}
	return resp.Body, resp.Header.Get("ETag"), nil
}

// Delete deletes an object. A missing object is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	resp, err := b.do(ctx, http.MethodDelete, key, nil, nil, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Entry is an object in a list.
type Entry struct {
	Key      string    `xml:"Key"`
	Size     int64     `xml:"Size"`
	ETag     string    `xml:"ETag"`
	Modified time.Time `xml:"LastModified"`
}

// Listing is one page of a bucket's list, as the service sends it.
type Listing struct {
	XMLName   xml.Name `xml:"ListBucketResult"`
	Truncated bool     `xml:"IsTruncated"`
	Next      string   `xml:"NextContinuationToken,omitempty"`
	Encoding  string   `xml:"EncodingType"`
	Contents  []Entry
}

const maxList = 8 << 20

// List lists up to 1,000 objects below a prefix, sorted by key. token is the previous call's next, which is empty at the
// end.
func (b *Bucket) List(ctx context.Context, prefix, token string) (all []Entry, next string, err error) {
	q := url.Values{"list-type": {"2"}, "prefix": {prefix}, "encoding-type": {"url"}}
	if token != "" {
		q.Set("continuation-token", token)
	}
	resp, err := b.do(ctx, http.MethodGet, "", q, nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	var l Listing
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxList)).Decode(&l); err != nil {
		return nil, "", fmt.Errorf("read the list of the bucket: %w", err)
	}
	for k := range l.Contents {
		if l.Encoding != "url" {
			break
		}
		if l.Contents[k].Key, err = url.QueryUnescape(l.Contents[k].Key); err != nil {
			return nil, "", fmt.Errorf("read the list of the bucket: %w", err)
		}
	}
	if !l.Truncated {
		l.Next = ""
	}
	return l.Contents, l.Next, nil
}

// do sends a request, and again if the bucket is in another region. The status is 2xx.
func (b *Bucket) do(ctx context.Context, method, key string, query url.Values, h http.Header, body []byte) (*http.Response, error) {
	region := *b.region.Load()
	resp, err := b.send(ctx, region, method, key, query, h, body)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	if other := resp.Header.Get("X-Amz-Bucket-Region"); other != "" && other != region && len(other) < 64 {
		_ = resp.Body.Close()
		b.region.Store(&other)
		if resp, err = b.send(ctx, other, method, key, query, h, body); err != nil || resp.StatusCode/100 == 2 {
			return resp, err
		}
	}
	defer resp.Body.Close()
	var said struct{ Code, Message string }
	_ = xml.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&said) // not XML: it still has a status
	switch {
	case resp.StatusCode == http.StatusPreconditionFailed:
		return nil, ErrCondition
	case resp.StatusCode == http.StatusNotFound && key != "" && said.Code != "NoSuchBucket":
		return nil, ErrNotFound
	}
	return nil, &StatusError{Status: resp.StatusCode, Code: said.Code, Message: said.Message}
}

func (b *Bucket) send(ctx context.Context, region, method, key string, query url.Values, h http.Header, body []byte) (*http.Response, error) {
	u, err := b.service.URL(b.name, key, region, query)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errAddress
	}
	req.URL = u
	maps.Copy(req.Header, h)
	sum := sha256.Sum256(body)
	if err := b.service.Sign(ctx, req, hex.EncodeToString(sum[:]), region); err != nil {
		return nil, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		var u *url.Error // it shows the URL, which may contain a password
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("ask the S3 service: %w", err)
	}
	return resp, nil
}
