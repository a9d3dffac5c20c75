package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// hub is the source of hf:// references (https://huggingface.co/docs/hub/api).
type hub struct {
	c   *Cache
	ref Ref
}

// hubModel is the answer of /api/models/ORG/NAME/revision/REV.
type hubModel struct {
	SHA      string       `json:"sha"`
	Siblings []hubSibling `json:"siblings"`
}

type hubSibling struct {
	Name   string     `json:"rfilename"`
	Size   *api.Bytes `json:"size"`
	BlobID string     `json:"blobId"`
	LFS    *struct {
		SHA256 string    `json:"sha256"`
		Size   api.Bytes `json:"size"`
	} `json:"lfs"`
}

// hubEntry is an entry of /api/models/ORG/NAME/tree/COMMIT.
type hubEntry struct {
	Type string    `json:"type"`
	OID  string    `json:"oid"`
	Size api.Bytes `json:"size"`
	Path string    `json:"path"`
	LFS  *struct {
		OID  string    `json:"oid"`
		Size api.Bytes `json:"size"`
	} `json:"lfs"`
}

func (h *hub) plan(ctx context.Context) (*plan, error) {
	var m hubModel
	base := h.c.cfg.Hub.Endpoint + "/api/models/" + h.ref.repo
	if err := h.c.do(ctx, h.hint, h.get(base+"/revision/"+url.PathEscape(h.ref.rev)+"?blobs=true"), decode(&m)); err != nil {
		return nil, fmt.Errorf("look up the repository: %w", err)
	}
	if !commitForm().MatchString(m.SHA) {
		return nil, permanentf("%s answers without a commit: is it a Hugging Face hub?", base)
	}
	files, err := h.files(ctx, base, m)
	if err != nil {
		return nil, err
	}
	if files, err = h.pick(files); err != nil {
		return nil, err
	}
	token, err := h.c.cfg.Hub.token()
	if err != nil {
		return nil, err
	}
	for i := range files {
		f := &files[i]
		address := h.c.cfg.Hub.Endpoint + "/" + h.ref.repo + "/resolve/" + m.SHA + "/" + (&url.URL{Path: f.name}).EscapedPath()
		f.from, f.id, f.get, f.hint, f.credential = address, address, h.get(address), h.hint, &token
		switch {
		case strings.HasPrefix(f.name, h.ref.path+"/"):
			f.name = strings.TrimPrefix(f.name, h.ref.path+"/")
		case h.ref.path != "": // a file
			f.name = path.Base(f.name)
		}
	}
	return &plan{revision: m.SHA, files: files}, nil
}

func (h *hub) files(ctx context.Context, base string, m hubModel) ([]file, error) {
	var all []file
	for _, s := range m.Siblings {
		f := file{name: s.Name, size: -1, sums: sums{git: s.BlobID}}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil {
			f.size, f.sums = s.LFS.Size, sums{sha256: s.LFS.SHA256}
		}
		if f.size < 0 || !f.sums.any() { // a hub without ?blobs=true
			return h.tree(ctx, base+"/tree/"+m.SHA+"?recursive=true")
		}
		all = append(all, f)
	}
	return all, wellFormed(all)
}

var nextPage = lazyregexp.New(`<([^>]+)>; *rel="next"`)

func (h *hub) tree(ctx context.Context, address string) ([]file, error) {
	var all []file
	seen := pages{}
	for address != "" {
		if err := seen.add(address); err != nil {
			return nil, err
		}
		var page []hubEntry
		next := ""
		err := h.c.do(ctx, h.hint, h.get(address), func(header http.Header, body []byte) error {
			if m := nextPage().FindStringSubmatch(header.Get("Link")); m != nil {
				next = m[1]
			}
			return json.Unmarshal(body, &page)
		})
		if err != nil {
			return nil, fmt.Errorf("list the repository: %w", err)
		}
		for _, e := range page {
			switch {
			case e.Type != "file":
			case e.LFS != nil:
				all = append(all, file{name: e.Path, size: e.LFS.Size, sums: sums{sha256: strings.TrimPrefix(e.LFS.OID, "sha256:")}})
			default:
				all = append(all, file{name: e.Path, size: e.Size, sums: sums{git: e.OID}})
			}
		}
		if next != "" && !strings.HasPrefix(next, h.c.cfg.Hub.Endpoint+"/") {
			return nil, permanentf("the next page of the hub's listing is on another server: refused")
		}
		if address = next; len(all) > maxFiles {
			return nil, permanentf("the repository has more than %d files", maxFiles)
		}
	}
	return all, wellFormed(all)
}

// wellFormed checks a hub's digests, which become file names here.
func wellFormed(files []file) error {
	for _, f := range files {
		if f.size < 0 || (f.sums.sha256 != "" && !isHex(f.sums.sha256, 64)) || (f.sums.git != "" && !isHex(f.sums.git, 40)) || !f.sums.any() {
			return permanentf("the hub's listing has a digest or a size for %.100q that is invalid", f.name)
		}
		if err := safeName(f.name); err != nil {
			return err
		}
	}
	return nil
}

// pick selects by path, patterns and quantization, with all parts of a split model. Of several GGUF models it takes the default
// quantization.
func (h *hub) pick(all []file) ([]file, error) {
	if h.ref.path != "" {
		var below []file
		for _, f := range all {
			if f.name == h.ref.path {
				return partsOf(f.name, all)
			}
			if strings.HasPrefix(f.name, h.ref.path+"/") {
				below = append(below, f)
			}
		}
		if len(below) == 0 {
			return nil, permanentf("%s has no file and no folder %s: it has %s", h.ref.repo, h.ref.path, examples(all, nameOf))
		}
		all = below
	}
	relative := func(f file) string { return strings.TrimPrefix(f.name, h.ref.path+"/") }
	kept, err := filter(h.ref, all, relative)
	if err != nil {
		return nil, err
	}
	quant, names := h.ref.quant, fileNames(kept)
	if quant == "" && h.ref.all() && len(ggufs(names)) > 1 {
		quant = anyQuant
	}
	if quant != "" {
		return ofQuant(quant, kept)
	}
	if _, err := gguf(names); err != nil {
		return nil, err
	}
	return withoutCopies(h.ref, kept, relative), nil
}

func (h *hub) get(address string) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, permanentf("the hub's address is malformed")
		}
		token, err := h.c.cfg.Hub.token()
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		return req, nil
	}
}

func (h *Hub) token() (string, error) {
	if h.TokenFile == "" {
		return h.Token, nil
	}
	text, err := os.ReadFile(h.TokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return h.Token, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the hub's token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if strings.ContainsAny(token, "\r\n\x00") {
		return "", permanentf("the hub's token in %s is more than one line", h.TokenFile)
	}
	return token, nil
}

// hint: the hub answers 401 also for missing repositories.
func (h *hub) hint(code int, header http.Header) string {
	token, _ := h.c.cfg.Hub.token()
	with := "with the token"
	if token == "" {
		with = "without a token (HF_TOKEN_PATH names the file that holds one)"
	}
	page := h.c.cfg.Hub.Endpoint + "/" + h.ref.repo
	switch header.Get("X-Error-Code") {
	case "GatedRepo":
		return "the repository is gated: accept its terms at " + page + ", then use a token of that account; asked " + with
	case "RevisionNotFound":
		return "the repository has no revision " + h.ref.rev
	case "RepoNotFound":
		return "there is no repository " + h.ref.repo + ", or it is private; asked " + with
	}
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "there is no repository " + h.ref.repo + ", or it is private or gated (" + page + "); asked " + with
	case http.StatusNotFound:
		return "there is no repository " + h.ref.repo + " with the revision " + h.ref.rev
	case http.StatusTooManyRequests:
		return "too many requests; asked " + with
	}
	return ""
}
