package keep

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-dev/rouse/engine/block"
)

// A file begins with a header, in little endian, padded to a multiple of align. The blocks follow.
//
//	8 bytes   "RSKEEP01"
//	32 bytes  SHA-256 of the header from here to its end
//	32 bytes  key
//	8 bytes   size of a block
//	8 bytes   where the blocks begin
//	4 bytes   number of blocks
//	24 bytes  for each block: its name (16) and the 64-bit xxHash of its contents (8)
const (
	magic = "RSKEEP01"
	fixed = 8 + 32 + 32 + 8 + 8 + 4
	each  = 16 + 8
	align = 4096
	// In blocks, between checks of the context.
	batch = 16
)

func headerBytes(n int) int64 { return (fixed + each*int64(n) + align - 1) / align * align }

func (s *Store) header(f *file) []byte {
	out := make([]byte, fixed, headerBytes(len(f.names)))
	copy(out, magic)
	copy(out[40:], s.cfg.Key[:])
	binary.LittleEndian.PutUint64(out[72:], uint64(s.cfg.BlockBytes))
	binary.LittleEndian.PutUint64(out[80:], uint64(f.at))
	binary.LittleEndian.PutUint32(out[88:], uint32(len(f.names)))
	for i, n := range f.names {
		out = binary.LittleEndian.AppendUint64(append(out, n[:]...), f.sums[i])
	}
	out = out[:cap(out)]
	sum := sha256.Sum256(out[40:])
	copy(out[8:], sum[:])
	return out
}

// errUnopened: the file may be good, if too many are open.
var errUnopened = errors.New("it can't be opened")

// read checks all but the blocks' contents.
func (s *Store) read(path string, size int64) (*file, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnopened, err)
	}
	defer r.Close()
	head := make([]byte, fixed)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if string(head[:8]) != magic {
		return nil, errors.New("it is of another kind or version")
	}
	if !bytes.Equal(head[40:72], s.cfg.Key[:]) {
		return nil, errors.New("it is of another model")
	}
	n, at := int64(binary.LittleEndian.Uint32(head[88:])), int64(binary.LittleEndian.Uint64(head[80:]))
	// The size bounds n, and n the memory below.
	if b := int64(binary.LittleEndian.Uint64(head[72:])); b != s.cfg.BlockBytes || n > size/b || at < headerBytes(int(n)) || at != size-n*b {
		return nil, fmt.Errorf("it has %d bytes, and is to have %d blocks of %d from %d on: it was cut, or written by another version", size, n, b, at)
	}
	whole := make([]byte, headerBytes(int(n)))
	copy(whole, head)
	if _, err := io.ReadFull(r, whole[fixed:]); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if sum := sha256.Sum256(whole[40:]); !bytes.Equal(sum[:], whole[8:40]) {
		return nil, errors.New("its header is not as it was written")
	}
	f := &file{at: at, names: make([]block.Hash, n), sums: make([]uint64, n)}
	for i := range f.names {
		e := whole[fixed+each*i:]
		copy(f.names[i][:], e)
		f.sums[i] = binary.LittleEndian.Uint64(e[16:])
	}
	return f, nil
}

// Write writes the blocks of these indices into Save's names to a file from offset on, and returns their checksums.
type Write func(path string, offset int64, numbers []int) (sums []uint64, err error)

// Save writes blocks that are in no file to a new one, the first ones within the limit, until ctx ends. It returns how
// many. If the disk or write fails, there is no new file.
func (s *Store) Save(ctx context.Context, names []block.Hash, write Write) (int, error) {
	names = names[:min(int64(len(names)), s.cfg.Limit/s.cfg.BlockBytes)]
	_ = os.Mkdir(s.dir, 0o700) // a user may remove the folder to delete conversations
	if !s.alone() {
		s.stats.Failed++
		return 0, fmt.Errorf("keep %d blocks in %s: it is gone, or not its owner's alone any more", len(names), s.dir)
	}
	s.sweep(0, nil)
	var numbers []int
	stay := map[string]bool{} // not removed for this call
	for i, n := range names {
		if p, ok := s.index[n]; ok {
			stay[p.name] = true
		} else {
			numbers = append(numbers, i)
		}
	}
	if len(numbers) == 0 {
		return 0, nil
	}
	room := s.sweep(s.fileBytes(len(numbers)), stay)
	for len(numbers) > 0 && s.fileBytes(len(numbers)) > room {
		numbers = numbers[:len(numbers)-1]
	}
	if len(numbers) == 0 || ctx.Err() != nil {
		return 0, nil
	}
	n, err := s.save(ctx, names, numbers, write)
	if err != nil {
		s.stats.Failed++
		return 0, fmt.Errorf("keep %d blocks in %s: %w", len(numbers), s.dir, err)
	}
	s.stats.Saved += n
	return n, nil
}

func (s *Store) fileBytes(n int) int64 { return headerBytes(n) + int64(n)*s.cfg.BlockBytes }

func (s *Store) save(ctx context.Context, names []block.Hash, numbers []int, write Write) (int, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return 0, err
	}
	name := s.prefix + hex.EncodeToString(id[:])
	out, err := os.OpenFile(filepath.Join(s.dir, name+partial), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	f := &file{at: headerBytes(len(numbers)), used: time.Now()}
	for err == nil && len(f.sums) < len(numbers) && ctx.Err() == nil {
		var sums []uint64
		some := numbers[len(f.sums):]
		some = some[:min(batch, len(some))]
		if sums, err = write(out.Name(), f.at+int64(len(f.sums))*s.cfg.BlockBytes, some); err == nil && len(sums) != len(some) {
			err = fmt.Errorf("%d blocks of %d are written", len(sums), len(some))
		}
		f.sums = append(f.sums, sums...)
	}
	if err == nil && len(f.sums) == 0 {
		err = context.Cause(ctx)
	}
	if err == nil {
		for _, i := range numbers[:len(f.sums)] {
			f.names = append(f.names, names[i])
		}
		_, err = out.WriteAt(s.header(f), 0)
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(out.Name(), filepath.Join(s.dir, name+suffix))
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(out.Name()))
	}
	s.add(name+suffix, f)
	return len(f.names), nil
}
