package fetch

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
)

// part is a partial download, which is locked, and survives a crash.
type part struct {
	c     *Cache
	path  string
	lock  *lock
	size  api.Bytes // arrived
	said  said
	sha   hash.Hash
	git   hash.Hash // nil: not wanted
	md5   hash.Hash // nil: not wanted
	seen  io.Writer // all hashes
	whole api.Bytes // as listed; -1: unknown
	sum   string    // the SHA-256 if sha has not seen all bytes, else ""
}

// said holds the headers with the file's first byte. It is stored beside the part.
type said struct {
	ETag     string    `json:"etag,omitempty"` // strong
	Weak     string    `json:"-"`              // parts can't be joined by it
	Modified string    `json:"modified,omitempty"`
	Size     api.Bytes `json:"size"` // -1: unknown
	SHA256   string    `json:"sha256,omitempty"`
	MD5      string    `json:"md5,omitempty"`
	// Boot is the machine's boot ID: after a machine's crash, bytes may be missing in the middle.
	Boot string `json:"boot,omitempty"`
}

// validator returns the value for If-Range, or "".
func (s said) validator() string {
	return cmp.Or(s.ETag, s.Modified)
}

// partID returns f's digest, which references share, or a hash of its source.
func partID(f file) string {
	if f.sums.sha256 != "" {
		return f.sums.sha256
	}
	sum := sha256.Sum256([]byte(f.id))
	return "u-" + hex.EncodeToString(sum[:])
}

// openPart also hashes what has arrived.
func (c *Cache) openPart(ctx context.Context, f file) (*part, error) {
	path := c.partPath(partID(f))
	l, err := waitLock(ctx, path, true, nil)
	if err != nil {
		return nil, err
	}
	p := &part{c: c, path: path, lock: l, whole: f.size}
	if text, err := os.ReadFile(path + ".json"); err != nil || json.Unmarshal(text, &p.said) != nil {
		p.said = said{Size: -1}
	}
	info, err := l.file.Stat()
	if err != nil {
		l.release()
		return nil, fileError("look at a download", err)
	}
	resumable := f.sums.any() || (c.ours(path) && p.said.validator() != "" && p.said.Boot == bootID())
	gaps := fileSize(path+chunksSuffix) >= 0
	if gaps && c.shares(f) { // its journal lists the chunks
		p.hashes(f)
		return p, nil
	}
	if gaps {
		discard(path + chunksSuffix)
	}
	if info.Size() == 0 || gaps || !resumable || (f.size >= 0 && api.Bytes(info.Size()) > f.size) {
		err = p.restart(f)
	} else {
		err = p.rehash(ctx, f)
	}
	if err != nil {
		l.release()
		return nil, err
	}
	return p, nil
}

func (p *part) restart(f file) error {
	if err := p.lock.file.Truncate(0); err != nil {
		return fileError("restart a download", err)
	}
	if _, err := p.lock.file.Seek(0, io.SeekStart); err != nil {
		return fileError("restart a download", err)
	}
	p.size, p.said = 0, said{Size: -1}
	p.hashes(f)
	return nil
}

func (p *part) hashes(f file) {
	p.sha, p.git, p.md5 = sha256.New(), nil, nil
	p.seen = p.sha
	if f.sums.md5 != "" || f.md5 {
		p.md5 = md5.New()
		p.seen = io.MultiWriter(p.seen, p.md5)
	}
	if f.sums.git != "" && f.size >= 0 {
		p.git = sha1.New()
		fmt.Fprintf(p.git, "blob %d\x00", int64(f.size))
		p.seen = io.MultiWriter(p.seen, p.git)
	}
}

func (p *part) rehash(ctx context.Context, f file) error {
	p.hashes(f)
	n, err := io.CopyBuffer(p.seen, &cancellable{ctx, p.lock.file}, make([]byte, 1<<20))
	p.size += api.Bytes(n)
	return fileError("read what has arrived", err)
}

func (p *part) Write(b []byte) (int, error) {
	n, err := p.lock.file.Write(b)
	_, _ = p.seen.Write(b[:n])
	p.size += api.Bytes(n)
	if err != nil {
		var needed api.Bytes
		if total := p.total(); total > p.size {
			needed = total - p.size
		}
		return n, p.c.writeError(err, needed)
	}
	return n, nil
}

// total returns -1 if the size is unknown.
func (p *part) total() api.Bytes {
	if p.whole >= 0 {
		return p.whole
	}
	return p.said.Size
}

func (p *part) note(s said) error {
	s.Boot = bootID()
	p.said = s
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("note a download: %w", err)
	}
	return writeFile(p.path+".json", text)
}

func (p *part) check(f file) error {
	if total := p.total(); total >= 0 && p.size != total {
		return permanentf("%s has %d bytes instead of %d", f.from, p.size, total)
	}
	for _, sum := range []struct {
		kind, want string
		h          hash.Hash
	}{
		{"sha256", f.sums.sha256, p.sha}, {"git object id", f.sums.git, p.git}, {"md5", f.sums.md5, p.md5},
		{"sha256", p.said.SHA256, p.sha}, {"md5", p.said.MD5, p.md5},
	} {
		if sum.want == "" || sum.h == nil {
			continue
		}
		if got := hex.EncodeToString(sum.h.Sum(nil)); got != sum.want {
			return permanentf("%s has the wrong content: expected the %s %s, and it is %s", f.from, sum.kind, sum.want, got)
		}
	}
	return nil
}

func (p *part) discard() {
	discard(p.path + ".json")
	discard(p.path + chunksSuffix)
	discard(p.path)
}

// blob downloads f unless the cache has it.
func (f *fetching) blob(ctx context.Context, claim *os.File, file file) (stored, error) {
	if b, ok := f.present(ctx, file); ok {
		return b, nil
	}
	p, err := f.c.openPart(ctx, file)
	if err != nil {
		return stored{}, err
	}
	defer p.lock.release()
	if b, ok := f.present(ctx, file); ok { // another reference's fetch was faster
		p.discard()
		return b, nil
	}
	f.meter.found(file.name, p.size)
	if err := f.receive(ctx, p, file); err != nil {
		return stored{}, err
	}
	sum := cmp.Or(p.sum, hex.EncodeToString(p.sha.Sum(nil)))
	if err := p.lock.file.Sync(); err != nil {
		return stored{}, f.c.writeError(err, 0)
	}
	if err := f.c.adopt(ctx, claim, p.path, sum); err != nil {
		return stored{}, err
	}
	_ = p.lock.file.Chmod(0o444)
	discard(p.path + ".json")
	discard(p.path + chunksSuffix)
	if f.c.shares(file) {
		f.c.noteShare(file)
	}
	return stored{SHA256: sum, Size: p.size}, syncDir(f.c.blobPath(""))
}

func (f *fetching) present(ctx context.Context, file file) (stored, bool) {
	b := stored{SHA256: file.sums.sha256, Size: file.size}
	if b.SHA256 == "" {
		return b, false
	}
	size := fileSize(f.c.blobPath(b.SHA256))
	if size < 0 || (file.size >= 0 && size != file.size) {
		return b, false
	}
	if !f.c.ours(f.c.blobPath(b.SHA256)) { // a bad blob may be why it is fetched
		if sum, err := disk.SHA256(ctx, f.c.blobPath(b.SHA256), nil); err != nil || sum != b.SHA256 {
			return b, false
		}
	}
	b.Size = size
	f.meter.found(file.name, size)
	return b, true
}

// receive fetches wrong content once more.
func (f *fetching) receive(ctx context.Context, p *part, file file) error {
	if file.get == nil {
		if p.size > 0 {
			if err := p.restart(file); err != nil {
				return err
			}
		}
		if _, err := p.Write(file.data); err != nil {
			return err
		}
		f.meter.got(file.name, p.size)
		return p.check(file)
	}
	if done, err := f.together(ctx, p, file); done || err != nil {
		return err
	}
	wrong, failures := false, 0
	for {
		before := p.size
		var err error
		if total := p.total(); total < 0 || p.size != total {
			err = f.transfer(ctx, p, file)
		}
		if err == nil {
			if err = p.check(file); err == nil {
				return nil
			}
			f.c.cfg.Logger.Warn("discarding a download", "file", file.name, "reason", err)
			f.meter.found(file.name, -p.size)
			if wrong {
				p.discard()
				return err
			}
			wrong = true
			if err := p.restart(file); err != nil {
				return err
			}
			continue
		}
		if p.size > before {
			failures = 0
		}
		failures++
		if err := f.c.again(ctx, failures, err); err != nil {
			return err
		}
		f.c.cfg.Logger.Warn("resuming a download", "file", file.name, "at", p.size.String(), "reason", err)
	}
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
