package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch/peers"
	"github.com/rouse-dev/rouse/internal/s3"
)

// bucket is the source of s3:// references: an object, or all below a prefix.
type bucket struct {
	c   *Cache
	ref Ref
	// region is the actual one, set while planning.
	region string
	client *http.Client
	// credential is "" if none; nil: unknown.
	credential *string
}

func (b *bucket) plan(ctx context.Context) (*plan, error) {
	b.region = cmp.Or(b.ref.region, b.c.cfg.S3.Region, "us-east-1")
	// A signature is for one host, so redirects can't be followed.
	stay := *b.c.client
	stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.client = &stay
	if c, err := b.credentials(); err == nil {
		b.credential = new(string)
		if c.AccessKeyID != "" {
			*b.credential = c.AccessKeyID + "\n" + c.SecretAccessKey
		}
	}
	if b.ref.path != "" && !strings.HasSuffix(b.ref.path, "/") {
		f, err := b.object(ctx)
		if err == nil {
			return &plan{revision: f.id, files: []file{*f}}, nil
		}
		if status := code(err); status != http.StatusNotFound && status != http.StatusForbidden {
			return nil, err
		}
		p, listErr := b.list(ctx)
		if listErr != nil && code(listErr) != 0 {
			return nil, err // without permission to list, the object's error is clearer
		}
		return p, listErr
	}
	return b.list(ctx)
}

func (b *bucket) object(ctx context.Context) (*file, error) {
	var f *file
	err := b.ask(ctx, http.MethodHead, b.ref.path, nil, func(resp *http.Response) error {
		s := heard(resp, resp.ContentLength)
		f = b.file(path.Base(b.ref.path), b.ref.path, s.Size, cmp.Or(s.ETag, s.Modified))
		f.sums.sha256 = s.SHA256
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, safeName(f.name)
}

// file's id has the entity tag: other content is another download.
func (b *bucket) file(name, key string, size api.Bytes, tag string) *file {
	return &file{
		name: name, size: size, md5: true, client: b.client, hint: b.hint, credential: b.credential,
		from: "s3://" + b.ref.repo + "/" + key, id: "s3://" + b.ref.repo + "/" + key + " " + b.c.cfg.S3.Endpoint + " " + tag,
		get: func(ctx context.Context) (*http.Request, error) {
			return b.request(ctx, http.MethodGet, key, nil, tag)
		},
	}
}

func (b *bucket) list(ctx context.Context) (*plan, error) {
	prefix := b.ref.path
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	var files []file
	var revision strings.Builder
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
	seen := pages{}
	for {
		if err := seen.add(query.Get("continuation-token")); err != nil {
			return nil, err
		}
		var l s3.Listing
		err := b.ask(ctx, http.MethodGet, "", query, func(resp *http.Response) error {
			l = s3.Listing{} // an attempt before this one may have filled it
			if err := xml.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxAnswer)).Decode(&l); err != nil {
				return fmt.Errorf("the listing of the bucket makes no sense: %w", err)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list the bucket: %w", err)
		}
		for _, o := range l.Contents {
			name, below := strings.CutPrefix(o.Key, prefix)
			if !below || name == "" || strings.HasSuffix(name, "/") { // folders' markers
				continue
			}
			if err := safeName(name); err != nil {
				return nil, err
			}
			files = append(files, *b.file(name, o.Key, api.Bytes(o.Size), o.ETag))
		}
		if len(files) > maxFiles {
			return nil, permanentf("there are more than %d objects below s3://%s/%s", maxFiles, b.ref.repo, prefix)
		}
		if !l.Truncated || l.Next == "" {
			break
		}
		query.Set("continuation-token", l.Next)
	}
	if len(files) == 0 {
		return nil, permanentf("there is no object s3://%s/%s and none below it", b.ref.repo, strings.TrimSuffix(prefix, "/"))
	}
	files, err := filter(b.ref, files, nameOf)
	if err != nil {
		return nil, err
	}
	for i := range files {
		fmt.Fprintln(&revision, files[i].id)
		if err := b.digest(ctx, prefix, &files[i]); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(revision.String()))
	return &plan{revision: "sha256:" + hex.EncodeToString(sum[:]), files: files}, nil
}

// digest asks for a SHA-256, which listings lack, if the object may be shared.
func (b *bucket) digest(ctx context.Context, prefix string, f *file) error {
	if b.c.node == nil || f.size < peers.MinSize {
		return nil
	}
	err := b.ask(ctx, http.MethodHead, prefix+f.name, nil, func(resp *http.Response) error {
		if s := heard(resp, resp.ContentLength); s.Size == f.size {
			f.sums.sha256 = s.SHA256
		}
		return nil
	})
	if code(err) == http.StatusForbidden || code(err) == http.StatusNotFound {
		return nil // the fetch reports it
	}
	return err
}

// ask repeats a request in the region that the bucket names.
func (b *bucket) ask(ctx context.Context, method, key string, query url.Values, read func(*http.Response) error) error {
	return b.c.retry(ctx, func() error {
		region := ""
		send := func() error {
			return b.c.exchange(ctx, b.client, func(ctx context.Context) (*http.Request, error) {
				return b.request(ctx, method, key, query, "")
			}, func(resp *http.Response) error {
				if resp.StatusCode != http.StatusOK {
					region = resp.Header.Get("X-Amz-Bucket-Region")
					return statusOf(resp, b.hint)
				}
				return read(resp)
			})
		}
		err := send()
		if err != nil && region != b.region && regionForm().MatchString(region) {
			b.region = region
			err = send()
		}
		return err
	})
}

// request's tag is the required entity tag.
func (b *bucket) request(ctx context.Context, method, key string, query url.Values, tag string) (*http.Request, error) {
	u, err := b.c.cfg.S3.URL(b.ref.repo, key, b.region, query)
	if err != nil {
		return nil, permanentf("%v", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, permanentf("the address of the S3 service is malformed")
	}
	req.URL = u
	req.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
	if strings.HasPrefix(tag, `"`) {
		req.Header.Set("If-Match", tag)
	}
	return req, noProfile(b.c.cfg.S3.Sign(ctx, req, s3.EmptySum, b.region))
}

func (b *bucket) credentials() (aws.Credentials, error) {
	c, err := b.c.cfg.S3.Credentials()
	return c, noProfile(err)
}

func noProfile(err error) error {
	if missing := (*s3.NoProfileError)(nil); errors.As(err, &missing) {
		return lasting{err}
	}
	return err
}

func (b *bucket) hint(code int, _ http.Header) string {
	c, err := b.credentials()
	as := "with the access key " + c.AccessKeyID
	if err != nil || c.AccessKeyID == "" {
		as = "without credentials (AWS_ACCESS_KEY_ID, AWS_SHARED_CREDENTIALS_FILE)"
	}
	switch code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return "the bucket " + b.ref.repo + " refuses; asked " + as
	case http.StatusNotFound:
		return "there is no such bucket or object"
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest:
		return "the bucket is not in the region " + b.region + ": set AWS_REGION, or ?region=… in the reference"
	case http.StatusPreconditionFailed:
		return "the object has changed since it was listed"
	}
	return ""
}
