package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"strings"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// pinned references can't change their content: they have a checksum, digest or commit.
func (r Ref) pinned() bool {
	switch {
	case r.sha256 != "":
		return true
	case r.Scheme == "hf":
		return commitForm().MatchString(r.rev)
	case r.Scheme == "oci":
		return strings.HasPrefix(r.rev, "sha256:")
	}
	return false
}

// String returns the canonical reference, without a URL's credentials and query.
func (r Ref) String() string {
	var s string
	switch r.Scheme {
	case "":
		return r.path
	case "file":
		s = "file://" + r.path
	case "http", "https":
		s = redact(r.url)
	case "hf":
		s = "hf://" + r.repo + "@" + strings.ReplaceAll(r.rev, "/", "%2F")
		if r.path != "" {
			s += "/" + r.path
		}
	case "oci":
		separator := ":"
		if strings.HasPrefix(r.rev, "sha256:") {
			separator = "@"
		}
		s = "oci://" + r.host + "/" + r.repo + separator + r.rev
	case "s3":
		s = "s3://" + r.repo + "/" + r.path
	case "ollama":
		s = "ollama://" + path.Join(r.host, strings.TrimPrefix(r.repo, "library/")) + ":" + r.rev
		if r.host != "" {
			s = "ollama://" + path.Join(r.host, r.repo) + ":" + r.rev
		}
	}
	return s + r.suffix()
}

func (r Ref) suffix() string {
	q := url.Values{}
	for key, value := range map[string]string{
		"include": strings.Join(r.include, ","), "exclude": strings.Join(r.exclude, ","), "quant": r.quant, "region": r.region,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	s := ""
	if len(q) > 0 {
		s = "?" + q.Encode()
	}
	if r.sha256 != "" {
		s += "#sha256=" + r.sha256
	}
	return s
}

// key returns a readable, unique base name. One name at two origins is two references.
func (r Ref) key(origin string) string {
	identity := r.String() + "\n" + origin
	if r.url != nil && r.sha256 == "" {
		identity += "\n" + r.url.RawQuery
	}
	sum := sha256.Sum256([]byte(identity))
	slug := strings.Trim(unsafeInName().ReplaceAllString(strings.ReplaceAll(r.String(), "://", "-"), "-"), "-.")
	return slug[:min(len(slug), 80)] + "-" + hex.EncodeToString(sum[:8])
}

var unsafeInName = lazyregexp.New(`[^A-Za-z0-9._]+`)
