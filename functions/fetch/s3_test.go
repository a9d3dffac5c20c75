package fetch_test

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// store makes an origin answer like S3, with one bucket called "models", by paths.
type store struct {
	*origin
	objects map[string][]byte
	keys    map[string]string // secrets by access key; nil: public
	region  string
	noList  bool
	corrupt bool
	sums    bool // it reports the objects' SHA-256
}

func newStore(t *testing.T) *store {
	s := &store{origin: newOrigin(t), region: "eu-test-1", objects: map[string][]byte{
		"llama/config.json":       []byte(`{}`),
		"llama/model.safetensors": random(70, 60_000),
		"llama/a b+c/ü&?.json":    []byte(`{"odd":"name"}`),
		"llama/":                  nil,
		"llama-2/config.json":     []byte(`{"other":true}`),
		"chat.gguf":               random(71, 40_000),
	}}
	s.answer(s.serve)
	return s
}

// signed checks the request's signature by signing it again.
func (s *store) signed(r *http.Request) bool {
	credential, rest, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), ", ")
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[2] != s.region {
		return false
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	copied := &http.Request{Method: r.Method, Host: r.Host, Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery}}
	headers, _, _ := strings.Cut(strings.TrimPrefix(rest, "SignedHeaders="), ",")
	for h := range strings.SplitSeq(headers, ";") {
		if v := r.Header.Get(h); v != "" && h != "host" {
			copied.Header.Set(h, v)
		}
	}
	err = signer.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: parts[0], SecretAccessKey: s.keys[parts[0]], SessionToken: r.Header.Get("X-Amz-Security-Token")},
		copied, r.Header.Get("X-Amz-Content-Sha256"), "s3", parts[2], at, func(o *signer.SignerOptions) { o.DisableURIPathEscaping = true })
	return err == nil && s.keys[parts[0]] != "" && copied.Header.Get("Authorization") == r.Header.Get("Authorization")
}

func (s *store) serve(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("X-Amz-Request-Id", "1")
	credential := r.Header.Get("Authorization")
	switch {
	case s.keys != nil && credential != "" && !strings.Contains(credential, "/"+s.region+"/"):
		w.Header().Set("X-Amz-Bucket-Region", s.region)
		w.WriteHeader(http.StatusMovedPermanently)
	case s.keys != nil && !s.signed(r):
		w.WriteHeader(http.StatusForbidden)
	case strings.TrimSuffix(r.URL.Path, "/") == "/models":
		s.list(w, r)
	default:
		s.object(w, r)
	}
	return true
}

// list answers with two keys at a time.
func (s *store) list(w http.ResponseWriter, r *http.Request) {
	if s.noList {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	type content struct {
		Key  string
		Size int
		ETag string
	}
	var answer struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	q := r.URL.Query()
	var keys []string
	for k := range s.objects {
		if strings.HasPrefix(k, q.Get("prefix")) && k > q.Get("continuation-token") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i == 2 {
			answer.IsTruncated, answer.NextContinuationToken = true, keys[1]
			break
		}
		answer.Contents = append(answer.Contents, content{k, len(s.objects[k]), etagOf(s.objects[k])})
	}
	_ = xml.NewEncoder(w).Encode(answer)
}

func etagOf(b []byte) string {
	s := md5.Sum(b)
	return `"` + hex.EncodeToString(s[:]) + `"`
}

func (s *store) object(w http.ResponseWriter, r *http.Request) {
	content, ok := s.objects[strings.TrimPrefix(r.URL.Path, "/models/")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", etagOf(content))
	if s.sums {
		sum := sha256.Sum256(content)
		w.Header().Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(sum[:]))
	}
	if s.corrupt {
		content = slices.Clone(content)
		content[0]++
	}
	http.ServeContent(w, r, "", zero, strings.NewReader(string(content)))
}

func (s *store) config(t *testing.T) fetch.Config {
	c := config(t, s.Server)
	c.Attempts = 2
	c.S3 = fetch.S3{Endpoint: s.URL, Region: s.region}
	return c
}

func TestBucket(t *testing.T) {
	s := newStore(t)
	s.keys = map[string]string{"AKTEST": "hush"}
	cfg := s.config(t)
	cfg.S3.AccessKey, cfg.S3.SecretKey, cfg.S3.Token = "AKTEST", "hush", "session"
	c := open(t, cfg)
	for _, ref := range []string{"s3://models/llama", "s3://models/llama/"} {
		m := fetched(t, c, ref)
		want := []string{"a b+c/ü&?.json", "config.json", "model.safetensors"}
		if got := names(t, m.Path); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", ref, got, want)
		}
		holds(t, filepath.Join(m.Path, "model.safetensors"), s.objects["llama/model.safetensors"])
	}
	before := len(s.seen())
	fetched(t, c, "s3://models/llama/")
	if more := s.seen()[before:]; slices.ContainsFunc(more, func(r string) bool { return strings.HasSuffix(r, "model.safetensors") }) {
		t.Errorf("fetching again asks %q", more)
	}
	m := fetched(t, c, "s3://models/chat.gguf")
	if holds(t, m.Path, s.objects["chat.gguf"]); filepath.Base(m.Path) != "chat.gguf" {
		t.Errorf("the object is at %s", m.Path)
	}
	if got := names(t, fetched(t, c, "s3://models?include=*/config.json").Path); !slices.Equal(got, []string{"llama-2/config.json", "llama/config.json"}) {
		t.Errorf("the whole bucket, filtered, has %q", got)
	}
	for ref, want := range map[string]string{
		"s3://models/nothing": "there is no object s3://models/nothing and none below it",
		"s3://other/a":        "answers 404",
	} {
		if err := refused(t, c, ref, want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

func TestBucketCredentials(t *testing.T) {
	s := newStore(t)
	s.keys = map[string]string{"AKFILE": "hush"}
	cfg := s.config(t)
	cfg.S3.CredentialsFile = filepath.Join(t.TempDir(), "credentials")
	c := open(t, cfg)
	refused(t, c, "s3://models/chat.gguf", "the bucket models refuses; asked without credentials")
	check(t, os.WriteFile(cfg.S3.CredentialsFile, []byte("[other]\naws_access_key_id = AKOTHER\n\n[default]\n# mine\naws_access_key_id = AKFILE\naws_secret_access_key = wrong\n"), 0o600))
	if err := refused(t, c, "s3://models/chat.gguf", "with the access key AKFILE"); strings.Contains(err.Error(), "wrong") || !fetch.Permanent(err) {
		t.Errorf("%v: want a permanent error without the secret", err)
	}
	check(t, os.WriteFile(cfg.S3.CredentialsFile, []byte("[default]\naws_access_key_id=AKFILE\naws_secret_access_key=hush\n"), 0o600))
	fetched(t, c, "s3://models/chat.gguf")
	cfg.S3.Profile = "nobody"
	refused(t, open(t, cfg), "s3://models/llama/", "has no profile nobody")
}

func TestBucketInAnotherRegion(t *testing.T) {
	s := newStore(t)
	s.keys = map[string]string{"AK": "hush"}
	cfg := s.config(t)
	cfg.S3.AccessKey, cfg.S3.SecretKey, cfg.S3.Region = "AK", "hush", "us-east-1"
	fetched(t, open(t, cfg), "s3://models/chat.gguf")
	cfg.Dir = filepath.Join(t.TempDir(), "other")
	fetched(t, open(t, cfg), "s3://models/llama/?region=eu-test-1")
}

func TestBucketThatMayNotBeListed(t *testing.T) {
	s := newStore(t)
	s.noList = true
	c := open(t, s.config(t)) // anonymous
	fetched(t, c, "s3://models/chat.gguf")
	refused(t, c, "s3://models/nothing", "there is no such bucket or object")
	refused(t, c, "s3://models/llama/", "list the bucket", "asked without credentials")
}

func TestBucketContentIsChecked(t *testing.T) {
	for _, sums := range []bool{false, true} {
		s := newStore(t)
		s.corrupt, s.sums = true, sums
		want := "expected the md5"
		if sums {
			want = "expected the sha256"
		}
		if err := refused(t, open(t, s.config(t)), "s3://models/chat.gguf", want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

func TestKeysThatLeaveTheFolder(t *testing.T) {
	for _, key := range []string{"evil/../../x", "evil//etc/passwd", "evil/./x"} {
		s := newStore(t)
		s.objects[key] = []byte("x")
		c := open(t, s.config(t))
		if err := refused(t, c, "s3://models/evil/", "refused"); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

// TestBucketListing: a server may cut an answer, or list a bucket without end.
func TestBucketListing(t *testing.T) {
	s := newStore(t)
	cut := true
	s.origin.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if cut && r.URL.Query().Has("list-type") {
			cut = false
			_, _ = w.Write([]byte("<ListBucketResult><Contents><Key>llama/config.json</Key><Size>1</Size></Contents>"))
			return true
		}
		return s.serve(w, r)
	})
	if got, want := names(t, fetched(t, open(t, s.config(t)), "s3://models/llama/").Path), []string{"a b+c/ü&?.json", "config.json", "model.safetensors"}; !slices.Equal(got, want) {
		t.Errorf("after an answer that was cut there is %q, want %q", got, want)
	}
	s.origin.answer(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write([]byte("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken></ListBucketResult>"))
		return true
	})
	if err := refused(t, open(t, s.config(t)), "s3://models/llama/", "the listing does not end"); !fetch.Permanent(err) {
		t.Errorf("%v is not permanent", err)
	}
}
