package fetch

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rouse-dev/rouse/internal/lazyregexp"
	"github.com/rouse-dev/rouse/internal/names"
)

var schemes = []string{"file", "http", "https", "hf", "oci", "s3", "ollama"}

// Ref is a parsed reference. Its zero value is not valid.
type Ref struct {
	// Scheme; "": no fetch is needed (see [Local]).
	Scheme string

	host    string   // registry (oci; ollama: "" is the configured one)
	repo    string   // org/name (hf), repository (oci), namespace/name (ollama), bucket (s3)
	rev     string   // revision (hf), tag or digest (oci), tag (ollama)
	path    string   // a path (file, ""), in the repository (hf), key or prefix (s3)
	region  string   // s3
	url     *url.URL // without the fragment
	sha256  string   // lower-case hex; "": any
	include []string
	quant   string // "": all files
	exclude []string
}

// Parse touches neither disk nor network; its errors are permanent.
func Parse(ref string) (Ref, error) {
	switch {
	case ref == "":
		return Ref{}, permanentf("the model's reference is empty: want a path, or one with a scheme: %s", known())
	case !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl):
		return Ref{}, permanentf("the model's reference %.80q holds a control character or is no UTF-8", ref)
	case len(ref) > 8192:
		return Ref{}, permanentf("the model's reference is longer than 8192 bytes")
	}
	scheme, rest, found := strings.Cut(ref, "://")
	if !found || strings.ContainsAny(scheme, "/?#") {
		return parsePlain(ref)
	}
	scheme = strings.ToLower(scheme)
	if !slices.Contains(schemes, scheme) {
		return Ref{}, permanentf("the model's reference has the unknown scheme %q%s: want one of %s, or a path", scheme, nearest(scheme), known())
	}
	r := Ref{Scheme: scheme}
	var err error
	switch scheme {
	case "file":
		err = r.parseFile(rest)
	case "http", "https":
		err = r.parseURL(scheme + "://" + rest)
	default:
		err = r.parseRemote(rest)
	}
	if err != nil {
		return Ref{}, err
	}
	return r, nil
}

func known() string { return strings.Join(schemes, "://, ") + "://" }

// nearest returns a clause with the scheme that was probably meant.
func nearest(scheme string) string {
	if best := names.Nearest(scheme, 3, schemes...); best != "" && len(scheme) > 1 {
		return " (did you mean " + best + "?)"
	}
	return ""
}

func isPath(ref string) bool {
	return strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../") || ref == "." || ref == ".."
}

// Local reports whether a valid reference needs no fetch: a path without a checksum, or a name for the runtime ("pico", "org/name").
func Local(ref string) bool {
	r, err := Parse(ref)
	return err == nil && r.Scheme == ""
}

func parsePlain(ref string) (Ref, error) {
	if scheme, rest, found := strings.Cut(ref, ":"); found && !isPath(ref) && strings.Contains(rest, "/") && slices.Contains(schemes, strings.ToLower(scheme)) {
		return Ref{}, permanentf("the model's reference %s lacks slashes: want %s://%s", ref, strings.ToLower(scheme), strings.TrimLeft(rest, "/"))
	}
	if !isPath(ref) {
		return Ref{path: ref}, nil
	}
	r := Ref{path: ref}
	if err := r.cutChecksum(); err != nil {
		return Ref{}, err
	}
	if r.sha256 != "" {
		r.Scheme = "file"
	}
	return r, nil
}

var checksumSuffix = lazyregexp.New(`[?#]sha256=[^?#]*$`)

// cutChecksum leaves other uses of ? and # in a file's name.
func (r *Ref) cutChecksum() error {
	at := checksumSuffix().FindStringIndex(r.path)
	if at == nil {
		return nil
	}
	_, sum, _ := strings.Cut(r.path[at[0]:], "=")
	r.path = r.path[:at[0]]
	return r.setChecksum(sum)
}

func (r *Ref) setChecksum(sum string) error {
	sum = strings.ToLower(strings.TrimPrefix(sum, "sha256:"))
	if !isHex(sum, 64) {
		return permanentf("sha256=%.80s is no checksum: want 64 hexadecimal digits", sum)
	}
	r.sha256 = sum
	return nil
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

func (r *Ref) parseFile(rest string) error {
	if r.path = rest; rest == "" {
		return permanentf("file:// names no path: want file:///absolute/path")
	}
	if after, found := strings.CutPrefix(rest, "localhost/"); found {
		r.path = "/" + after
	}
	return r.cutChecksum()
}

func (r *Ref) parseURL(ref string) error {
	u, err := url.Parse(ref)
	if err != nil { // the error would show the whole URL
		return permanentf("the model's reference is no URL: want %s://host/path/file", r.Scheme)
	}
	if u.Hostname() == "" {
		return permanentf("%s names no host: want %s://host/path/file", redact(u), r.Scheme)
	}
	switch sum, isSum := strings.CutPrefix(u.Fragment, "sha256="); {
	case isSum:
		err = r.setChecksum(sum)
	case u.Fragment != "":
		err = permanentf("%s#%.80s: after # only sha256=HEX is known", redact(u), u.Fragment)
	}
	u.Fragment, u.RawFragment = "", ""
	u.Host = strings.ToLower(u.Host)
	r.url = u
	return err
}

func (r *Ref) parseRemote(rest string) error {
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	if fragment != "" {
		sum, isSum := strings.CutPrefix(fragment, "sha256=")
		if !isSum {
			return permanentf("%s://%s#%.80s: after # only sha256=HEX is known", r.Scheme, rest, fragment)
		}
		if err := r.setChecksum(sum); err != nil {
			return err
		}
	}
	if err := r.parseQuery(query); err != nil {
		return err
	}
	if strings.Contains(rest, "@") && r.Scheme == "s3" {
		if bucket, _, _ := strings.Cut(rest, "/"); strings.Contains(bucket, "@") {
			return permanentf("an s3:// reference holds no credentials: set them in the environment or in a credentials file")
		}
	}
	switch r.Scheme {
	case "hf":
		return r.parseHub(rest)
	case "oci":
		return r.parseOCI(rest)
	case "s3":
		return r.parseS3(rest)
	default:
		return r.parseOllama(rest)
	}
}

func (r *Ref) parseQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return permanentf("the query of the model's %s:// reference is malformed: want ?include=*.gguf,*.json&exclude=*.md", r.Scheme)
	}
	for key, vs := range values {
		var patterns []string
		for _, p := range strings.Split(strings.Join(vs, ","), ",") {
			if p != "" {
				patterns = append(patterns, p)
			}
		}
		switch {
		case key == "include" && r.Scheme != "ollama":
			r.include = patterns
		case key == "exclude" && r.Scheme != "ollama":
			r.exclude = patterns
		case key == "quant" && r.Scheme == "hf" && len(patterns) == 1 && quantForm().MatchString(patterns[0]):
			r.quant = patterns[0]
		case key == "region" && r.Scheme == "s3" && len(patterns) == 1 && regionForm().MatchString(patterns[0]):
			r.region = patterns[0]
		case key == "sha256" && len(vs) == 1:
			err = r.setChecksum(vs[0])
		default:
			err = permanentf("the query of the model's %s:// reference holds %q, which is unknown or malformed: want include, exclude or sha256 (hf:// also quant, s3:// also region)", r.Scheme, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	hubSegment  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	hubSpecial  = lazyregexp.New(`^refs/(?:convert|pr)/[^/]+`)
	bucketForm  = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{1,62}$`)
	regionForm  = lazyregexp.New(`^[a-z0-9-]{1,40}$`)
	ollamaPart  = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$`)
	hostForm    = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)
	commitForm  = lazyregexp.New(`^[0-9a-f]{40}$`)
	hubRevision = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._+/-]{0,199}$`)
)

func (r *Ref) parseHub(rest string) error {
	const want = "want hf://org/name, hf://org/name@revision or hf://org/name@revision/path/in/repository"
	org, rest, _ := strings.Cut(rest, "/")
	end := strings.IndexAny(rest, "@/")
	if end < 0 {
		end = len(rest)
	}
	base, rest := rest[:end], rest[end:]
	if !hubSegment().MatchString(org) || !hubSegment().MatchString(base) {
		return permanentf("hf://%.100s/%.100s names no repository of a hub: %s", org, base, want)
	}
	r.repo, r.rev = org+"/"+base, "main"
	if after, found := strings.CutPrefix(rest, "@"); found {
		special := hubSpecial().FindString(after)
		rev, tail, _ := strings.Cut(after[len(special):], "/")
		if special != "" && rev != "" {
			return permanentf("hf://%s@%.100s: %s", r.repo, after, want)
		}
		decoded, err := url.PathUnescape(special + rev)
		if err != nil || !hubRevision().MatchString(decoded) || strings.Contains(decoded, "..") {
			return permanentf("hf://%s@%.100s names no revision: want a branch, a tag or a commit", r.repo, after)
		}
		r.rev, rest = decoded, tail
	}
	r.path = strings.Trim(rest, "/")
	if r.path != "" {
		return safeName(r.path)
	}
	return nil
}

func (r *Ref) parseOCI(rest string) error {
	parsed, err := name.ParseReference(rest)
	if err != nil || !strings.Contains(rest, "/") {
		return permanentf("oci://%.200s names no artifact: want oci://registry/repository:tag or oci://registry/repository@sha256:DIGEST", rest)
	}
	r.host, r.repo, r.rev = parsed.Context().RegistryStr(), parsed.Context().RepositoryStr(), parsed.Identifier()
	return nil
}

func (r *Ref) parseS3(rest string) error {
	bucket, key, _ := strings.Cut(rest, "/")
	if !bucketForm().MatchString(bucket) {
		return permanentf("s3://%.100s names no bucket: want s3://bucket/key or s3://bucket/prefix/", bucket)
	}
	r.repo, r.path = bucket, key
	if len(key) > 1024 {
		return permanentf("s3://%s/%.40s…: the key is longer than 1024 bytes", bucket, key)
	}
	return nil
}

func (r *Ref) parseOllama(rest string) error {
	parts := strings.Split(rest, "/")
	last, tag, tagged := strings.Cut(parts[len(parts)-1], ":")
	if !tagged {
		tag = "latest"
	}
	names := []string{"library", last}
	switch len(parts) {
	case 1:
	case 3:
		r.host, parts = strings.ToLower(parts[0]), parts[1:]
		fallthrough
	case 2:
		names[0] = parts[0]
	default:
		names = nil
	}
	ok := len(names) == 2 && ollamaPart().MatchString(tag) && (r.host == "" || hostForm().MatchString(r.host))
	for _, n := range names {
		ok = ok && ollamaPart().MatchString(n)
	}
	if !ok {
		return permanentf("ollama://%.200s names no model: want ollama://name, ollama://name:tag, ollama://user/name:tag or ollama://host/user/name:tag", rest)
	}
	r.repo, r.rev = names[0]+"/"+names[1], tag
	return nil
}
