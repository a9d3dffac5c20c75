package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"
)

// Service is the address of a service, with credentials.
type Service struct {
	// Endpoint has the bucket in the path; empty: Amazon's.
	Endpoint string
	// Region; empty: us-east-1, or the one that the service answers with.
	Region                      string
	AccessKey, SecretKey, Token string
	// CredentialsFile is read at each use, unless there is an AccessKey. If it does not exist, requests are anonymous.
	CredentialsFile string
	// Profile is the file's section; empty: default.
	Profile string
}

// Environment returns the service of AWS's environment variables.
func Environment(getenv func(string) string) Service {
	file := getenv("AWS_SHARED_CREDENTIALS_FILE")
	if home := getenv("HOME"); file == "" && home != "" {
		file = filepath.Join(home, ".aws/credentials")
	}
	return Service{
		Endpoint:        cmp.Or(getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL")),
		Region:          cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")),
		AccessKey:       getenv("AWS_ACCESS_KEY_ID"),
		SecretKey:       getenv("AWS_SECRET_ACCESS_KEY"),
		Token:           getenv("AWS_SESSION_TOKEN"),
		CredentialsFile: file,
		Profile:         getenv("AWS_PROFILE"),
	}
}

// NoProfileError means that the credentials file does not have the requested profile.
type NoProfileError struct{ File, Profile string }

func (e *NoProfileError) Error() string { return e.File + " has no profile " + e.Profile }

// Credentials returns the current credentials; empty ones mean none.
func (s *Service) Credentials() (aws.Credentials, error) {
	if s.AccessKey != "" {
		return aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, SessionToken: s.Token}, nil
	}
	if s.CredentialsFile == "" {
		return aws.Credentials{}, nil
	}
	raw, err := os.ReadFile(s.CredentialsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return aws.Credentials{}, nil
	}
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("read the credentials of s3: %w", err)
	}
	profile := cmp.Or(s.Profile, "default")
	var c aws.Credentials
	section, found := "", false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.TrimSpace(strings.TrimPrefix(strings.Trim(line, "[]"), "profile "))
			found = found || section == profile
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section != profile || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "aws_access_key_id":
			c.AccessKeyID = value
		case "aws_secret_access_key":
			c.SecretAccessKey = value
		case "aws_session_token":
			c.SessionToken = value
		}
	}
	if s.Profile != "" && !found {
		return aws.Credentials{}, &NoProfileError{File: s.CredentialsFile, Profile: s.Profile}
	}
	return c, nil
}

// Sign signs a request (Signature Version 4) whose body has the hexadecimal SHA-256 sum, if there are credentials.
func (s *Service) Sign(ctx context.Context, req *http.Request, sum, region string) error {
	c, err := s.Credentials()
	if err != nil || c.AccessKeyID == "" {
		return err
	}
	req.Header.Set("X-Amz-Content-Sha256", sum)
	return signer.NewSigner().SignHTTP(ctx, c, req, sum, "s3", region, time.Now(), func(o *signer.SignerOptions) { o.DisableURIPathEscaping = true })
}

// EmptySum is the SHA-256 of an empty body.
const EmptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// errAddress omits the URL, which may contain a password.
var errAddress = errors.New("the address of the S3 service is malformed")

// URL returns the address of a key, or with key "" of the bucket.
func (s *Service) URL(bucket, key, region string, query url.Values) (*url.URL, error) {
	base, where := s.Endpoint, "/"+key
	switch {
	case base != "":
		where = "/" + bucket + where
	case strings.Contains(bucket, "."): // no certificate is valid for such a host
		base, where = "https://s3."+region+".amazonaws.com", "/"+bucket+where
	default:
		base = "https://" + bucket + ".s3." + region + ".amazonaws.com"
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errAddress
	}
	u.RawPath = strings.TrimRight(u.EscapedPath(), "/") + httpbinding.EscapePath(where, false) // as signatures require
	u.Path = strings.TrimRight(u.Path, "/") + where
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // as it is signed
	return u, nil
}
