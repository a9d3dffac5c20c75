package fetch

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/api"
)

type source struct {
	origin string // a configured server, part of the reference's identity
	plan   func(context.Context) (*plan, error)
}

func (c *Cache) source(r Ref) source {
	switch r.Scheme {
	case "hf":
		return source{c.cfg.Hub.Endpoint, (&hub{c: c, ref: r}).plan}
	case "oci":
		return source{"", (&registry{c: c, ref: r}).plan}
	case "s3":
		return source{c.cfg.S3.Endpoint, (&bucket{c: c, ref: r}).plan}
	case "ollama":
		return source{c.cfg.Ollama.Endpoint, (&library{c: c, ref: r}).plan}
	}
	return source{"", (&web{c: c, ref: r}).plan}
}

// plan is the present content of a reference.
type plan struct {
	revision string // the source's name for this content, or ""
	files    []file
	path     string // to load, unless the files' names give it
	gguf     string
	name     string
	// merge, if not nil, makes the model's files of the unpacked layers and the plain files.
	merge func(layers []layer, files []stored) ([]stored, error)
}

type file struct {
	name   string    // in the model's tree; an archive's is only for progress
	size   api.Bytes // -1: unknown
	sums   sums
	from   string // redacted, for messages
	id     string // names the download if no SHA-256 does
	unpack bool   // a tar archive, perhaps compressed
	md5    bool   // the server may send an MD5
	// credential's holders may have the file from other caches; "": all may; nil: nobody.
	credential *string
	hint       hint         // may be nil
	client     *http.Client // nil: the cache's
	// get builds the request, for each attempt. nil: data is the content.
	get  func(context.Context) (*http.Request, error)
	data []byte
}

// sums are known digests, in lower-case hex; "": unknown.
type sums struct {
	sha256 string
	git    string // the object's id
	md5    string
}

func (s sums) any() bool { return s != sums{} }

// fetching is one fetch of a reference that this process has locked.
type fetching struct {
	c     *Cache
	ref   Ref
	key   string
	old   *record // cached; may be nil, or not whole
	meter *meter
	// unpacked counts the bytes from the model's archives.
	unpacked atomic.Int64
}

// parallel is how many of a model's files are downloaded at once; checkTimeout bounds a look-up if the cache has an answer.
const (
	parallel     = 4
	checkTimeout = 5 * time.Second
)

func (f *fetching) run(ctx context.Context, src source) (Model, error) {
	p, err := f.ask(ctx, src)
	if err != nil {
		return f.fallback(ctx, err)
	}
	if f.old != nil && f.old.Revision == p.revision && p.revision != "" {
		m, err := f.same(ctx)
		if m != nil || err != nil {
			return deref(m), err
		}
	}
	began := time.Now()
	f.c.cfg.Logger.Info("fetching model", "ref", f.ref.String(), "files", len(p.files), "revision", p.revision)
	e, err := f.download(ctx, p)
	if err != nil {
		return Model{}, err
	}
	m, err := f.c.commit(ctx, f.key, e)
	if err != nil {
		return Model{}, err
	}
	f.meter.finish()
	f.c.cfg.Logger.Info("fetched model", "ref", f.ref.String(), "size", e.size().String(), "took", time.Since(began).Round(time.Millisecond))
	if err := f.c.tidy(ctx, f.key); err != nil {
		f.c.cfg.Logger.Warn("cleaning up the model cache failed", "reason", err)
	}
	return m, nil
}

func (f *fetching) ask(ctx context.Context, src source) (*plan, error) {
	if f.old == nil || f.c.whole(ctx, f.old, false) != nil {
		return f.named(src.plan(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return f.named(src.plan(ctx))
}

// named checks a plan, and gives the reference's checksum to its one file.
func (f *fetching) named(p *plan, err error) (*plan, error) {
	if err != nil {
		return nil, err
	}
	if len(p.files) == 0 {
		return nil, permanentf("there is no file that the reference names")
	}
	for _, file := range p.files {
		if file.unpack {
			continue
		}
		if err := safeName(file.name); err != nil {
			return nil, err
		}
	}
	want := f.ref.sha256
	if want == "" {
		return p, nil
	}
	if len(p.files) != 1 || p.files[0].unpack {
		return nil, permanentf("the reference has a checksum, which is of one file, but means %d files: leave #sha256=… out, or name one file", len(p.files))
	}
	if said := p.files[0].sums.sha256; said != "" && said != want {
		return nil, permanentf("%s: the source says that its sha256 is %s, and the reference says %s", p.files[0].name, said, want)
	}
	p.files[0].sums.sha256 = want
	return p, nil
}

// fallback uses the cached content if the source does not answer.
func (f *fetching) fallback(ctx context.Context, reason error) (Model, error) {
	if f.old == nil || Permanent(reason) || ctx.Err() != nil {
		return Model{}, reason
	}
	m, _, err := f.c.open(ctx, f.key, func(*record) bool { return true })
	if err != nil {
		return Model{}, err
	}
	if m == nil {
		return Model{}, reason
	}
	f.c.cfg.Logger.Warn("the model's source does not answer: using the cached model", "ref", f.ref.String(), "reason", reason)
	return *m, nil
}

// same uses the cached content, which the source has confirmed.
func (f *fetching) same(ctx context.Context) (*Model, error) {
	m, e, err := f.c.open(ctx, f.key, func(*record) bool { return true })
	if err != nil || m == nil {
		return nil, err
	}
	e.Checked = time.Now()
	if err := f.c.rewrite(ctx, f.key, e); err != nil {
		f.c.cfg.Logger.Warn("recording the check of a cached model failed", "ref", e.Ref, "reason", err)
	}
	return m, nil
}

func (f *fetching) download(ctx context.Context, p *plan) (*record, error) {
	claim, err := f.claim(ctx, p)
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	layers := f.knownLayers(p)
	if err := f.room(ctx, p, layers); err != nil {
		return nil, err
	}
	got := make([]stored, len(p.files))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, file := range p.files {
		if file.unpack && layers[i].SHA256 != "" {
			f.meter.found(file.name, file.size)
			continue
		}
		group.Go(func() error {
			b, err := f.blob(groupCtx, claim, file)
			if err != nil {
				return fmt.Errorf("%s: %w", file.name, err)
			}
			got[i] = stored{Name: file.name, Size: b.Size, SHA256: b.SHA256, Git: file.sums.git}
			if file.unpack {
				layers[i], err = f.unpack(groupCtx, claim, b)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	e := &record{Ref: f.ref.String(), Revision: p.revision, Path: p.path, GGUF: p.gguf, Name: p.name, Checked: time.Now()}
	for i, file := range p.files {
		if file.unpack {
			e.Layers = append(e.Layers, layers[i])
		} else {
			e.Files = append(e.Files, got[i])
		}
	}
	if p.merge != nil {
		if e.Files, err = p.merge(e.Layers, e.Files); err != nil {
			return nil, err
		}
	}
	return e, e.finish()
}

// knownLayers returns a layer for each file of the plan; only those of archives that another entry has unpacked are set.
func (f *fetching) knownLayers(p *plan) []layer {
	found := make([]layer, len(p.files))
	if !slices.ContainsFunc(p.files, func(file file) bool { return file.unpack }) {
		return found
	}
	known := map[string]layer{}
	for _, e := range f.c.entries() {
		for _, l := range e.Layers {
			known[l.SHA256] = l
		}
	}
	for i, file := range p.files {
		l, ok := known[file.sums.sha256]
		if file.unpack && ok && !slices.ContainsFunc(l.Items, func(a archive) bool { return a.SHA256 != "" && !f.c.hasBlob(stored{Size: a.Size, SHA256: a.SHA256}) }) {
			found[i] = l
		}
	}
	return found
}

// claim tells other processes which blobs this fetch needs, before it checks which exist. The
// caller closes the file.
func (f *fetching) claim(ctx context.Context, p *plan) (*os.File, error) {
	index, err := f.c.lockIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer index.release()
	claim, err := os.OpenFile(f.c.claimPath(f.key), os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fileError("write to the model cache", err)
	}
	var lines strings.Builder
	entries := f.c.entries()
	f.recognize(p, entries)
	for _, file := range p.files {
		if file.sums.sha256 != "" {
			lines.WriteString(file.sums.sha256 + "\n")
		}
	}
	for _, e := range entries {
		for _, l := range e.Layers {
			if !slices.ContainsFunc(p.files, func(file file) bool { return file.unpack && file.sums.sha256 == l.SHA256 }) {
				continue
			}
			for _, item := range l.Items {
				if item.SHA256 != "" {
					lines.WriteString(item.SHA256 + "\n")
				}
			}
		}
	}
	if _, err := claim.WriteString(lines.String()); err != nil {
		claim.Close()
		return nil, f.c.writeError(err, 0)
	}
	return claim, nil
}

// recognize finds the SHA-256 of files that the plan names by a git object's id, if the cache has both.
func (f *fetching) recognize(p *plan, entries []entry) {
	type object struct {
		git  string
		size api.Bytes
	}
	known := map[object]string{}
	for _, e := range entries {
		for _, s := range e.Files {
			if s.Git != "" && f.c.hasBlob(s) {
				known[object{s.Git, s.Size}] = s.SHA256
			}
		}
	}
	for i := range p.files {
		if sums := &p.files[i].sums; sums.sha256 == "" && sums.git != "" {
			sums.sha256 = known[object{sums.git, p.files[i].size}]
		}
	}
}

// adopt makes the file at path the blob sum, claimed by this fetch.
func (c *Cache) adopt(ctx context.Context, claim *os.File, path, sum string) error {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer index.release()
	if _, err := claim.WriteString(sum + "\n"); err != nil {
		return c.writeError(err, 0)
	}
	if err := os.Rename(path, c.blobPath(sum)); err != nil {
		return fileError("keep a file of the model", err)
	}
	return nil
}

// writeError adds advice; needed is still to be written, 0 if unknown.
func (c *Cache) writeError(err error, needed api.Bytes) error {
	if !full(err) {
		return fileError("write to the model cache", err)
	}
	free, freeErr := c.cfg.Free(c.cfg.Dir)
	if freeErr != nil {
		free = 0
	}
	return &DiskError{Dir: c.cfg.Dir, Needed: needed, Free: free, Err: err}
}
