package fetch

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// credentials are those that are valid now; empty ones mean none.
func (s *S3) credentials() (aws.Credentials, error) {
	if s.AccessKey != "" {
		return aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey, SessionToken: s.Token}, nil
	}
	if s.CredentialsFile == "" {
		return aws.Credentials{}, nil
	}
	f, err := os.Open(s.CredentialsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return aws.Credentials{}, nil
	}
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("read the credentials of s3: %w", err)
	}
	defer f.Close()
	profile := s.Profile
	if profile == "" {
		profile = "default"
	}
	var c aws.Credentials
	section, found := "", false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
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
	if err := lines.Err(); err != nil {
		return aws.Credentials{}, fmt.Errorf("read the credentials of s3: %w", err)
	}
	if s.Profile != "" && !found {
		return aws.Credentials{}, permanentf("%s has no profile %s", s.CredentialsFile, s.Profile)
	}
	return c, nil
}

// digestOf names a text by its SHA-256.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
